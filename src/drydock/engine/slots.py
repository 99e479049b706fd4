"""The KV cache of running requests: preallocated tensors per layer, one slot a request.

    keys[layer], values[layer]: [slots, kv heads, capacity + 1, head size]

Running requests occupy slots 0 .. n-1 without a gap, so that a decode step reads views and copies nothing. Rows of
different lengths sit left-aligned in their slots; positions and masks are passed to the model explicitly, one row
at a time, which is why `SlotCache` works with any model whose attention goes through the Hugging Face cache
interface, sliding windows included. The last column of a slot is scratch: pads of a ragged prefill write there, and
no mask ever shows it.

Stored values are always finite (tensors start as zeros), because a masked NaN would still poison the softmax.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

CAPACITY_STEP = 256

type KeysAndValues = list[tuple[Tensor, Tensor]]


class SlotCache(Cache):
    """Slots for `layer_count` attention layers, growing with need.

    Use: `reserve`, then `aim` at the rows and positions of the next forward pass, then run the model with it.
    """

    def __init__(self, layer_count: int) -> None:
        self.slots = 0
        self.capacity = 0
        self.target = _Target()
        super().__init__(layers=[_SlotLayer(self) for _ in range(layer_count)])

    def reserve(self, slots: int, length: int) -> None:
        """Make room for `slots` rows of `length` tokens; contents of existing slots are kept."""
        if slots <= self.slots and length <= self.capacity:
            return
        if slots > self.slots:
            self.slots = max(slots, min(2 * self.slots, self.slots + 32))
        if length > self.capacity:
            self.capacity = -(-length // CAPACITY_STEP) * CAPACITY_STEP
        for layer in self._attention_layers():
            layer.resize()

    def aim(self, first_slot: int, positions: Tensor, length: int) -> None:
        """Set where the next forward pass writes and reads.

        positions: [rows, new tokens], own position of each new token of slots first_slot, first_slot + 1, ...;
        a pad has position -1. length: number of leading positions that are read (the mask hides what is not ready).
        """
        rows = positions.shape[0]
        where = torch.where(positions < 0, self.capacity, positions)
        self.target = _Target(
            rows=slice(first_slot, first_slot + rows),
            index=torch.arange(rows, device=positions.device)[:, None],
            where=where,
            length=length,
        )

    def move(self, source: int, destination: int, length: int) -> None:
        """Hand the first `length` positions of one slot to another; the first is free afterwards."""
        self.copy(source, destination, length)

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        for layer in self._attention_layers():
            keys, values = layer.stored()
            keys[destination, :, :length] = keys[source, :, :length]
            values[destination, :, :length] = values[source, :, :length]

    def read(self, slot: int, length: int) -> KeysAndValues:
        """Copies of the first `length` positions, per layer [kv heads, length, head size]."""
        stored = [layer.stored() for layer in self._attention_layers()]
        return [(keys[slot, :, :length].clone(), values[slot, :, :length].clone()) for keys, values in stored]

    def write(self, slot: int, content: KeysAndValues, length: int) -> None:
        """Put the first `length` positions of `content` into a slot."""
        for layer, (new_keys, new_values) in zip(self._attention_layers(), content, strict=True):
            layer.allocate(new_keys, new_values)
            keys, values = layer.stored()
            keys[slot, :, :length] = new_keys[:, :length]
            values[slot, :, :length] = new_values[:, :length]

    def wipe(self, slot: int) -> None:
        """Zero one slot, so that values that are not finite do not stay."""
        for layer in self._attention_layers():
            if layer.is_initialized:
                for tensor in layer.stored():
                    tensor[slot] = 0

    def clear(self) -> None:
        """Zero everything."""
        for layer in self._attention_layers():
            layer.reset()

    def bytes_per_token(self) -> int:
        """Size of one position over all layers; 0 before the first forward pass."""
        layers = [layer.stored() for layer in self._attention_layers() if layer.is_initialized]
        return sum(t.shape[1] * t.shape[3] * t.element_size() for pair in layers for t in pair)

    def _attention_layers(self) -> "list[_SlotLayer]":
        return [layer for layer in self.layers if isinstance(layer, _SlotLayer)]


class _Target:
    """Slots, positions and read length of one forward pass; see `SlotCache.aim`."""

    __slots__ = ("index", "length", "rows", "where")

    def __init__(
        self,
        rows: slice = slice(0, 0),
        index: Tensor | None = None,
        where: Tensor | None = None,
        length: int = 0,
    ) -> None:
        self.rows = rows
        self.index = index
        self.where = where
        self.length = length


class _SlotLayer(CacheLayerMixin):
    """One layer's tensors; allocated when the model first shows their shape."""

    is_sliding = False

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        self._owner = owner

    def allocate(self, keys: Tensor, values: Tensor) -> None:
        """Allocate for tensors whose last three dimensions are [kv heads, tokens, head size]."""
        if not self.is_initialized:
            columns = self._owner.capacity + 1
            self.keys = keys.new_zeros(self._owner.slots, keys.shape[-3], columns, keys.shape[-1])
            self.values = values.new_zeros(self._owner.slots, values.shape[-3], columns, values.shape[-1])
            self.is_initialized = True

    def resize(self) -> None:
        if self.is_initialized:
            self.keys, self.values = (self._grown(tensor) for tensor in self.stored())

    def stored(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.allocate(key_states, value_states)
        target = self._owner.target
        keys, values = self.stored()
        keys, values = keys[target.rows], values[target.rows]
        keys[target.index, :, target.where] = key_states.transpose(1, 2)
        values[target.index, :, target.where] = value_states.transpose(1, 2)
        return keys[:, :, : target.length], values[:, :, : target.length]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.allocate(key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.target.length, 0

    def get_seq_length(self) -> int:
        target = self._owner.target
        return target.length - (target.where.shape[1] if target.where is not None else 0)

    def get_max_length(self) -> int:
        return -1

    def _grown(self, tensor: Tensor) -> Tensor:
        slots, heads, columns, size = tensor.shape
        new = tensor.new_zeros(self._owner.slots, heads, self._owner.capacity + 1, size)
        new[:slots, :, : columns - 1] = tensor[:, :, :-1]
        return new
