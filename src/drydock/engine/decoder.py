"""Forward passes of a Hugging Face causal model over slots: ragged prefill and one-token decode.

Positions and the additive attention mask are built here, row by row exact, and handed to the model, which then
skips its own mask code. Rows of a prefill are right-aligned within the pass (pads in front), so that every row's
next-token logits are in the last column. A row alone that starts from nothing needs no mask: plain causal attention
is the same and faster.

Layers may attend fully or through a sliding window. Any other kind (linear attention, state space, chunked) is
refused, and `check` compares a short ragged run with plain forward passes before the engine serves anyone. What is
refused runs row by row instead (`row_decoder`).
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from drydock.engine.model import cache_argument, vocabulary_size
from drydock.engine.prefix_cache import Tokens
from drydock.engine.slots import SlotCache
from drydock.errors import EngineError

SUPPORTED_LAYERS = frozenset({"full_attention", "sliding_attention"})
CHECK_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}

type Visit = Callable[[int, Tensor], None]
"""Called with the position of the first token and the logits [tokens, vocab] of a run of positions."""


class SlotDecoder:
    """Runs `model` over the slots of its own `SlotCache`. Callers hold `torch.inference_mode`.

    whole: whether what a slot holds serves only those who continue all of it (here: no, any prefix can be taken).
    """

    whole = False

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        config = model.config.get_text_config(decoder=True)
        kinds = set(getattr(config, "layer_types", None) or ())
        if kinds - SUPPORTED_LAYERS:
            raise EngineError(
                f"{type(model).__name__} has layers of kind {', '.join(sorted(kinds - SUPPORTED_LAYERS))}; "
                "the torch sampling engine serves full and sliding-window attention only"
            )
        self.slots = SlotCache(config.num_hidden_layers)
        self._window: int | None = getattr(config, "sliding_window", None)
        if kinds == {"full_attention"}:
            self._window = None
        self._mixed = len(kinds) > 1
        self._cache_argument = cache_argument(model)
        self._device, self._dtype = model.device, model.dtype
        self._hidden = torch.finfo(model.dtype).min

    def prefill(self, first_slot: int, tokens: Sequence[Tokens], held: Sequence[int], *, max_tokens: int) -> Tensor:
        """Run what each row's slot does not hold yet; next-token logits [rows, vocab].

        tokens: ids of slots first_slot, first_slot + 1, ... held: leading ids whose keys and values are in the slot
        already, fewer than there are. A single row longer than `max_tokens` is run in pieces.
        """
        if len(tokens) == 1:
            row, done = tokens[0], held[0]
            while len(row) - done > max_tokens:
                self._run(first_slot, [row[: done + max_tokens]], [done])
                done += max_tokens
            held = [done]
        return self._run(first_slot, tokens, held)

    def prefill_visited(self, slot: int, tokens: Tokens, visit: Visit, *, max_tokens: int) -> Tensor:
        """Run a row from its beginning in pieces of `max_tokens`, show `visit` all logits; the last ones [1, vocab]."""
        logits = torch.empty(0)
        for start in range(0, len(tokens), max_tokens):
            logits = self._run(slot, [tokens[: start + max_tokens]], [start], every=True)[0]
            visit(start, logits)
        return logits[-1:]

    def decode(self, last_ids: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """One step of slots 0, 1, ...; next-token logits [rows, vocab].

        last_ids: each row's newest token, whose keys and values are computed now. lengths: tokens with it.
        """
        positions = torch.tensor(lengths, device=self._device)[:, None] - 1
        return self._forward(0, torch.tensor(last_ids, device=self._device)[:, None], positions, max(lengths))

    @torch.inference_mode()
    def check(self) -> None:
        """Compare a ragged run over slots with plain forward passes. Raises EngineError when they differ."""
        name = type(self.model).__name__
        try:
            error = self._worst_difference()
        except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as failure:
            raise EngineError(f"{name} does not run over a slot cache: {failure}") from failure
        if not error < CHECK_TOLERANCE.get(self._dtype, 0.2):
            raise EngineError(
                f"{name} gives other log-probs with a slot cache than without (by {error:.2g}); "
                "the torch sampling engine cannot serve this architecture"
            )
        self.slots.clear()

    def _worst_difference(self) -> float:
        vocab = vocabulary_size(self.model)
        rows = [(np.arange(n, dtype=np.int64) * 7 + n) % vocab for n in (11, 6)]
        self.slots.reserve(2, 16)
        self.prefill(0, [rows[0][:6].astype(np.int32)], [0], max_tokens=16)
        outputs = [self.prefill(0, [row[:-1].astype(np.int32) for row in rows], [6, 0], max_tokens=16)]
        outputs.append(self.decode([int(row[-1]) for row in rows], [len(row) for row in rows]))
        worst = 0.0
        for index, row in enumerate(rows):
            whole = self.model(input_ids=torch.from_numpy(row)[None].to(self._device), use_cache=False).logits[0]
            ours = torch.stack([output[index] for output in outputs]).float()
            worst = max(worst, float((ours.log_softmax(-1) - whole[-2:].float().log_softmax(-1)).abs().max()))
        return worst

    def _run(self, first_slot: int, tokens: Sequence[Tokens], held: Sequence[int], *, every: bool = False) -> Tensor:
        width = max(len(row) - done for row, done in zip(tokens, held, strict=True))
        ids = np.zeros((len(tokens), width), np.int64)
        positions = np.full((len(tokens), width), -1, np.int64)
        for index, (row, done) in enumerate(zip(tokens, held, strict=True)):
            new = len(row) - done
            ids[index, width - new :] = row[done:]
            positions[index, width - new :] = np.arange(done, len(row))
        return self._forward(
            first_slot,
            torch.from_numpy(ids).to(self._device),
            torch.from_numpy(positions).to(self._device),
            max(len(row) for row in tokens),
            every=every,
            masked=self._window is not None or len(tokens) > 1 or held[0] > 0,
        )

    def _forward(
        self, first_slot: int, ids: Tensor, positions: Tensor, length: int, *, every: bool = False, masked: bool = True
    ) -> Tensor:
        self.slots.aim(first_slot, positions, length)
        shown = positions.clamp(min=0)
        output = self.model(
            input_ids=ids,
            attention_mask=self._mask(shown, length) if masked else None,
            position_ids=shown,
            use_cache=True,
            logits_to_keep=0 if every else 1,
            **{self._cache_argument: self.slots},
        )
        return output.logits if every else output.logits[:, -1]

    def _mask(self, positions: Tensor, length: int) -> Tensor | dict[str, Tensor]:
        """Additive masks [rows, 1, new tokens, length]: each token sees the positions up to its own."""
        keys = torch.arange(length, device=positions.device)
        hidden = keys > positions[:, None, :, None]
        full = self._additive(hidden)
        if self._window is None:
            return full
        sliding = self._additive(hidden | (keys <= positions[:, None, :, None] - self._window))
        return {"full_attention": full, "sliding_attention": sliding} if self._mixed else sliding

    def _additive(self, hidden: Tensor) -> Tensor:
        zeros = torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device)
        return zeros.masked_fill_(hidden, self._hidden)
