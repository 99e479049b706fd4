"""A loaded model as batches see it: which rows it takes, how they are laid out, and how they run.

The training engine runs batches with gradients through it, the log-prob engine and `forward` without; both get the same
numbers for the same rows.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from drydock.engine.batch import TrainBatch, parse_batch, parse_forward
from drydock.engine.batch_run import row_widths, run_batch
from drydock.engine.layout import Layout, plan_layout
from drydock.engine.model import ModelCall, max_positions, vocabulary_size
from drydock.engine.prefix_sharing import why_not_shared


class Policy:
    """One model.

    max_seq_len: longest row; the model's own limit when None. max_tokens: budget of a micro-batch. unshared_because:
    a reason not to share prefixes, in a few words that can be part of a metric name; where it is None the model itself
    is asked.
    """

    def __init__(
        self, model: PreTrainedModel, *, max_seq_len: int | None, max_tokens: int, unshared_because: str | None = None
    ) -> None:
        self.max_seq_len = min(value for value in (max_seq_len, max_positions(model), 2**31) if value)
        self._max_tokens = max_tokens
        self._vocab_size = vocabulary_size(model)
        self._call = ModelCall(model)
        self.unshared_because = unshared_because or why_not_shared(self._call)

    def parse(self, request: Mapping[str, Any]) -> TrainBatch:
        """A forward-backward request, checked. Raises UserError; see `drydock.engine.batch`."""
        return parse_batch(request, vocab_size=self._vocab_size, max_seq_len=self.max_seq_len)

    def run(self, batch: TrainBatch) -> dict[str, Any]:
        """Run a batch, gradients included where it trains anything; see `drydock.engine.batch_run`."""
        widths = row_widths(batch.needed())
        layout = plan_layout(
            [batch.input_ids[row, :width] for row, width in enumerate(widths)],
            max_tokens=self._max_tokens,
            share_prefixes=self.unshared_because is None,
        )
        result = run_batch(self._call, batch, layout)
        return result | {"metrics": result["metrics"] | self._layout_metrics(layout)}

    @torch.no_grad()
    def score(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Log-probs of every real position, and whatever else `processing.post` asks for; nothing is changed.

        request: `kwargs` as of forward-backward (labels have no meaning here) and `processing.post`; its context, loss
        and loss settings are not looked at.
        Returns post_process_outputs (logprobs and, if asked for, entropy: float32 [B, T], predict-next, 0 where there
        is no next token) and metrics (floats). Raises UserError for a request that is refused.
        """
        result = self.run(parse_forward(request, vocab_size=self._vocab_size, max_seq_len=self.max_seq_len))
        metrics = {name: value for name, value in result["metrics"].items() if name.startswith("prefix_sharing/")}
        return {"metrics": metrics, "post_process_outputs": result["post_process_outputs"]}

    def _layout_metrics(self, layout: Layout) -> dict[str, float]:
        metrics = {
            "prefix_sharing/row_tokens": float(layout.row_tokens),
            "prefix_sharing/computed_tokens": float(layout.computed_tokens),
            "prefix_sharing/micro_batches": float(len(layout.micro_batches)),
        }
        if self.unshared_because is not None:
            metrics[f"prefix_sharing/off/{self.unshared_because}"] = 1.0
        return metrics
