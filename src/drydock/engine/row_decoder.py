"""Forward passes row by row, each row with a cache of its own: slow, and exact for any causal model.

For models whose layers cannot run ragged over slots: linear attention keeps one state per row, positions may enter
the attention in ways that need the model's own code. Each row runs as a batch of one through the cache that the model
itself asks for. Such a state cannot be cut back to a shorter prefix, so it is copied whole, and the state of a prompt
is kept apart before its last token runs: that is what other samples of the prompt begin with.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from drydock.engine.decoder import CHECK_TOLERANCE, Visit
from drydock.engine.model import ModelCall, vocabulary_size
from drydock.engine.prefix_cache import Tokens
from drydock.errors import EngineError

_MEASURED_TOKENS = 256


class RowSlots:
    """One cache object a slot; the same interface as `SlotCache` where the engine uses it."""

    def __init__(self) -> None:
        self.caches: list[Any] = []
        self.token_bytes = 0

    def reserve(self, slots: int, length: int) -> None:
        """Make room for `slots` rows."""
        self.caches.extend([None] * (slots - len(self.caches)))

    def move(self, source: int, destination: int, length: int) -> None:
        """Hand the state of one slot to another."""
        self.caches[destination], self.caches[source] = self.caches[source], None

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copy the state of one slot, which is that of `length` tokens, to another."""
        self.caches[destination] = copy.deepcopy(self.caches[source])

    def read(self, slot: int, length: int) -> Any:
        """A copy of the state, which is that of `length` tokens."""
        return copy.deepcopy(self.caches[slot])

    def write(self, slot: int, content: Any, length: int) -> None:
        """Put a copy of a state of `length` tokens into a slot."""
        self.caches[slot] = copy.deepcopy(content)

    def wipe(self, slot: int) -> None:
        """Forget a state."""
        self.caches[slot] = None

    def bytes_per_token(self) -> int:
        """Size of the state of a row of 256 tokens, divided by them."""
        return self.token_bytes


class RowDecoder:
    """Runs `model` one row at a time. Callers hold `torch.inference_mode`.

    on_row: called before each row's passes with its place among the rows of the call.
    prompt_states: by slot, a copy of the state before the last token of its latest prefill.
    """

    whole = True

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.slots = RowSlots()
        self.on_row: Callable[[int], None] = lambda row: None
        self.prompt_states: dict[int, Any] = {}
        self._call = ModelCall(model)

    def prefill(self, first_slot: int, tokens: Sequence[Tokens], held: Sequence[int], *, max_tokens: int) -> Tensor:
        """As `SlotDecoder.prefill`."""
        logits = []
        for row, (ids, done) in enumerate(zip(tokens, held, strict=True)):
            self.on_row(row)
            logits.append(self._prefill_row(first_slot + row, ids, done, max_tokens))
        return torch.cat(logits)

    def prefill_visited(self, slot: int, tokens: Tokens, visit: Visit, *, max_tokens: int) -> Tensor:
        """As `SlotDecoder.prefill_visited`."""
        cache = self.slots.caches[slot] = self._new_cache()
        before_last = len(tokens) - 1
        for start in range(0, before_last, max_tokens):
            piece = tokens[start : min(start + max_tokens, before_last)]
            visit(start, self._call.all_logits(self._ids(piece), cache)[0])
        self.prompt_states[slot] = copy.deepcopy(cache)
        logits = self._call.all_logits(self._ids(tokens[before_last:]), cache)[0]
        visit(before_last, logits)
        return logits

    def decode(self, last_ids: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """As `SlotDecoder.decode`."""
        logits = []
        for slot, token in enumerate(last_ids):
            self.on_row(slot)
            ids = torch.tensor([[token]], device=self.model.device)
            logits.append(self._call.all_logits(ids, self.slots.caches[slot], last=1)[:, 0])
        return torch.cat(logits)

    @torch.inference_mode()
    def check(self) -> None:
        """Compare a run in pieces with a plain forward pass. Raises EngineError when they differ."""
        name = type(self.model).__name__
        vocab = vocabulary_size(self.model)
        ids = ((torch.arange(14) * 7 + 3) % vocab)[None].to(self.model.device)
        try:
            cache = self._new_cache()
            parts = [self._call.all_logits(part, cache) for part in (ids[:, :9], ids[:, 9:10], ids[:, 10:])]
            whole = self._call.all_logits(ids)
        except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as failure:
            raise EngineError(f"the torch sampling engine cannot run {name} with a cache: {failure}") from failure
        error = (torch.cat(parts, 1).float().log_softmax(-1) - whole.float().log_softmax(-1)).abs().max().item()
        if not error < CHECK_TOLERANCE.get(self.model.dtype, 0.2):
            raise EngineError(
                f"{name} gives other log-probs with a cache than without (by {error:.2g}); the torch sampling engine "
                "cannot serve this architecture"
            )
        self.slots.token_bytes = self._state_bytes(vocab) // _MEASURED_TOKENS

    def _prefill_row(self, slot: int, tokens: Tokens, held: int, max_tokens: int) -> Tensor:
        if not held:
            self.slots.caches[slot] = self._new_cache()
        cache = self.slots.caches[slot]
        before_last = len(tokens) - 1
        for start in range(held, before_last, max_tokens):
            self._call.all_logits(self._ids(tokens[start : min(start + max_tokens, before_last)]), cache, last=1)
        self.prompt_states[slot] = copy.deepcopy(cache)
        return self._call.all_logits(self._ids(tokens[before_last:]), cache, last=1)[:, 0]

    def _ids(self, tokens: Tokens) -> Tensor:
        return torch.from_numpy(tokens).to(self.model.device, torch.long)[None]

    def _new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.model.config.get_text_config(decoder=True))

    def _state_bytes(self, vocab: int) -> int:
        cache = self._new_cache()
        self._call.all_logits(torch.arange(_MEASURED_TOKENS, device=self.model.device)[None] % vocab, cache, last=1)
        tensors = [value for layer in cache.layers for value in vars(layer).values() if isinstance(value, Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
