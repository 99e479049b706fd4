"""Runs a checked batch through a model in micro-batches: log-probs, loss, gradients, metrics.

The denominators of every mean are those of the whole call, so micro-batches add up. A loss whose rows depend on one
another (pairs, a threshold over all tokens) sees the whole call at once, however it is cut: where there is more than
one micro-batch, a first pass without gradients collects every row's scores, the loss and its derivative by each score
are computed from all of them, and a second pass carries those derivatives back through the model. Exact by the chain
rule, for one more forward pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drydock.engine.batch import TrainBatch
from drydock.engine.layout import Layout, MicroBatch
from drydock.engine.model import ModelCall
from drydock.engine.prefix_sharing import row_scores
from drydock.engine.token_scores import TokenScores
from drydock.errors import EngineError
from drydock.losses import LossInputs, LossOutput

DATA_PARALLEL_RANKS = 1


def run_batch(call: ModelCall, batch: TrainBatch, layout: Layout) -> dict[str, Any]:
    """Add the gradients of `batch` to the model's parameters (none where it trains nothing).

    layout: covers the leading tokens of every row up to its last needed position.
    Returns avg_loss (float), metrics (floats) and post_process_outputs (logprobs, entropy: float32 [B, T],
    predict-next, 0 where there is no next token; what the batch's posts ask for).
    Raises EngineError when the loss is not finite; some gradients may have been added by then.
    """
    run = _Run(call, batch)
    if len(layout.micro_batches) > 1 and batch.couples_rows and run.trains(range(len(batch.lengths))):
        run.coupled(layout)
    else:
        for micro_batch in layout.micro_batches:
            run.separate(micro_batch)
    return run.totals.result()


class _Run:
    def __init__(self, call: ModelCall, batch: TrainBatch) -> None:
        self._call = call
        self._batch = batch
        self._needed = batch.needed()
        self._widths = row_widths(self._needed)
        self._denominators = batch.denominators(DATA_PARALLEL_RANKS)
        self.totals = _Totals(batch)

    def trains(self, rows: Sequence[int]) -> bool:
        return bool(self._batch.trained[list(rows)].any())

    def separate(self, micro_batch: MicroBatch) -> None:
        """A micro-batch whose rows need no other's."""
        rows = list(micro_batch.rows)
        trains = self.trains(rows)
        with torch.set_grad_enabled(trains):
            scores = self._scores(micro_batch)
            self.totals.add_scores(rows, scores)
            if trains:
                output = self._loss(rows, scores)
                output.loss.backward()
                self.totals.add(output)

    def coupled(self, layout: Layout) -> None:
        """All micro-batches, with a loss that sees every row."""
        collected: TokenScores | None = None
        with torch.no_grad():
            for micro_batch in layout.micro_batches:
                rows, scores = list(micro_batch.rows), self._scores(micro_batch)
                self.totals.add_scores(rows, scores)
                if collected is None:
                    shape = self._batch.input_ids.shape
                    collected = TokenScores.zeros(shape, scores.wanted(), scores.logprobs)
                for whole, part in zip(collected.tensors(), scores.tensors(), strict=True):
                    whole[rows, : part.shape[1]] = part
        if collected is None:
            return
        leaves = [tensor.requires_grad_() for tensor in collected.tensors()]
        output = self._loss(list(range(len(self._batch.lengths))), collected)
        derivatives = torch.autograd.grad(output.loss, leaves, allow_unused=True)
        self.totals.add(output)
        for micro_batch in layout.micro_batches:
            rows = list(micro_batch.rows)
            if not any(d is not None and bool(d[rows].any()) for d in derivatives):
                continue
            scores = self._scores(micro_batch)
            width = scores.logprobs.shape[1]
            parts = [
                (score * derivative[rows, :width].to(score.dtype)).sum()
                for score, derivative in zip(scores.tensors(), derivatives, strict=True)
                if derivative is not None
            ]
            torch.stack(parts).sum().backward()

    def _scores(self, micro_batch: MicroBatch) -> TokenScores:
        rows = list(micro_batch.rows)
        width = int(self._widths[rows].max())
        device = self._call.model.device

        def part(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array[rows, :width])).to(device)

        batch = self._batch
        return row_scores(
            self._call,
            part(batch.input_ids),
            part(batch.targets),
            part(self._needed),
            micro_batch.prefix_length,
            temperature=None if batch.temperature is None else part(batch.temperature),
            entropy=batch.wanted.entropy,
            candidates=None if batch.candidates is None else part(batch.candidates),
        )

    def _loss(self, rows: list[int], scores: TokenScores) -> LossOutput:
        inputs: LossInputs = self._batch.loss_inputs(rows, scores)
        output = self._batch.loss.function(inputs, self._batch.config, self._denominators)
        if not bool(torch.isfinite(output.loss)):
            raise EngineError(
                f"loss {self._batch.loss.name!r} is {float(output.loss.detach())} on rows {rows}; gradients since the "
                "last step are dropped"
            )
        return output


def row_widths(needed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Leading tokens [rows] that each row has to run through the model: up to its last needed position."""
    return np.where(needed.any(axis=1), needed.shape[1] - needed[:, ::-1].argmax(axis=1), 0)


class _Totals:
    """What a call reports, summed over its micro-batches."""

    def __init__(self, batch: TrainBatch) -> None:
        self._trained_positions = float((batch.loss_mask != 0).sum())
        self._trained_rows = float((batch.loss_mask != 0).any(axis=1).sum())
        self._loss = 0.0
        self._means: dict[str, float] = {}
        self._sums: dict[str, float] = {}
        self._maxima: dict[str, float] = {}
        self._minima: dict[str, float] = {}
        self._packing = batch.packing
        self._outputs = {name: np.zeros(batch.input_ids.shape, np.float32) for name in batch.outputs}

    def add(self, output: LossOutput) -> None:
        self._loss += float(output.loss.detach())
        _merge(self._means, output.means, lambda a, b: a + b)
        _merge(self._sums, output.sums, lambda a, b: a + b)
        _merge(self._maxima, output.maxima, max)
        _merge(self._minima, output.minima, min)

    def add_scores(self, rows: list[int], scores: TokenScores) -> None:
        for name, output in self._outputs.items():
            values = getattr(scores, name)
            output[rows, : values.shape[1]] = values.detach().float().cpu().numpy()

    def result(self) -> dict[str, Any]:
        outputs = self._outputs
        if self._packing is not None:
            outputs = {name: self._packing.put_back(values) for name, values in outputs.items()}
        return {"avg_loss": self._loss, "metrics": self._metrics(), "post_process_outputs": outputs}

    def _metrics(self) -> dict[str, float]:
        count = max(self._trained_positions, 1.0)
        return {
            "tokens": self._trained_positions,
            "rows": self._trained_rows,
            **{name: value / count for name, value in self._means.items()},
            **self._sums,
            **self._maxima,
            **self._minima,
        }


def _merge(totals: dict[str, float], values: Mapping[str, Tensor], combine: Any) -> None:
    for name, value in values.items():
        number = float(value)
        totals[name] = combine(totals[name], number) if name in totals else number
