"""The training engine: forward-backward calls that accumulate gradients, and the optimizer step.

The result of a call does not depend on how it was cut into micro-batches, on the order of its rows or on how far
they are padded: losses divide by denominators of the whole call, and every row is computed exactly, with or without
a shared prefix.

A call is checked before anything is computed. If it fails later all the same (a loss that is not finite), the
gradients accumulated since the last step are dropped, because some micro-batches may already have added theirs.

Not thread-safe: one owner.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drydock.engine import checkpoint
from drydock.engine.batch import TrainBatch, parse_batch
from drydock.engine.layout import Layout, MicroBatch, plan_layout
from drydock.engine.model import ModelCall, default_device, load_model, load_tokenizer, max_positions, vocabulary_size
from drydock.engine.prefix_sharing import row_logprobs, why_not_shared
from drydock.engine.settings import TrainingConfig, parse_settings
from drydock.engine.types import WeightSet
from drydock.engine.weights import write_weights
from drydock.errors import EngineError, UserError
from drydock.losses import Denominators, LossInputs, count_denominators

DATA_PARALLEL_RANKS = 1


class TrainingEngine:
    """One policy under training.

    model_name: Hugging Face folder or hub id. training_config: see `drydock.engine.settings.TrainingConfig`.
    Raises UserError for a model that cannot be found, ConfigError for settings.
    """

    def __init__(
        self,
        model_name: str,
        training_config: Mapping[str, Any],
        *,
        seed: int = 0,
        dtype: str | None = None,
        device: str | None = None,
    ) -> None:
        self.config = parse_settings(TrainingConfig, training_config, where="training_config")
        self.model_name = model_name
        torch.manual_seed(seed)
        self.model = load_model(model_name, dtype=dtype, device=device or default_device())
        self.tokenizer = load_tokenizer(model_name)
        self.global_steps = 0
        limit = max_positions(self.model)
        self.max_seq_len = min(value for value in (self.config.max_seq_len, limit, 2**31) if value)
        self._vocab_size = vocabulary_size(self.model)
        self._call = ModelCall(self.model)
        self._unshared_reason = why_not_shared(self._call) if self.config.prefix_sharing else "switched_off"
        self.optimizer = self._build_optimizer()
        self._pending_calls = 0
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def prefix_sharing_off_because(self) -> str | None:
        """Why prefixes are not shared for this model, or None where they are."""
        return self._unshared_reason

    def forward_backward(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Add one call's gradients; see `drydock.engine.batch` for the request.

        Returns avg_loss (float), metrics (floats) and post_process_outputs (logprobs: float32 [B, T], predict-next,
        0 where there is no next token; only if asked for).
        Raises UserError for a request that is refused (nothing changed), EngineError for a result that is not finite.
        """
        batch = parse_batch(request, vocab_size=self._vocab_size, max_seq_len=self.max_seq_len)
        needed = batch.needed()
        widths = np.where(needed.any(axis=1), needed.shape[1] - needed[:, ::-1].argmax(axis=1), 0)
        layout = plan_layout(
            [batch.input_ids[row, :width] for row, width in enumerate(widths)],
            max_tokens=self.config.mb_spec.max_tokens_per_mb,
            share_prefixes=self._unshared_reason is None,
        )
        totals = _Totals(batch)
        try:
            for micro_batch in layout.micro_batches:
                self._micro_batch(batch, needed, micro_batch, int(widths[list(micro_batch.rows)].max()), totals)
        except BaseException:
            self._drop_gradients()
            raise
        self._pending_calls += 1
        return totals.result() | {"metrics": totals.metrics() | self._layout_metrics(layout)}

    def step(self, learning_rate: float | None = None) -> dict[str, Any]:
        """Clip, update, clear the gradients. A given learning rate stays until another is given.

        Raises UserError when nothing was accumulated since the last step, EngineError (weights unchanged, gradients
        dropped) when the gradient norm is not finite.
        """
        if self._pending_calls == 0:
            raise UserError("step without gradients: no forward-backward call since the last step")
        if learning_rate is not None:
            if not (np.isfinite(learning_rate) and learning_rate >= 0):
                raise UserError(f"learning_rate must be a finite number >= 0, got {learning_rate}")
            for group in self.optimizer.param_groups:
                group["lr"] = float(learning_rate)
        limit = self.config.gradient_clipping
        grad_norm = float(
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), float("inf") if limit is None else limit)
        )
        if not np.isfinite(grad_norm):
            self._drop_gradients()
            raise EngineError(f"the gradient norm is {grad_norm}; the step was not taken, its gradients are dropped")
        self.optimizer.step()
        self._drop_gradients()
        self.global_steps += 1
        return {
            "global_steps": self.global_steps,
            "last_lr": self.optimizer.param_groups[0]["lr"],
            "metrics": {"grad_norm": grad_norm},
        }

    def save(self, directory: Path, checkpoint_type: str = "resumable") -> dict[str, Any]:
        """Write a checkpoint folder, whole or not at all; see `drydock.engine.checkpoint`.

        Raises UserError when `directory` exists, the type is unknown, or a resumable checkpoint is asked for while
        gradients are accumulated (they would be lost).
        """
        if checkpoint_type == "resumable" and self._pending_calls:
            raise UserError("a resumable checkpoint cannot hold accumulated gradients; call step first")
        optimizer = self.optimizer if checkpoint_type == "resumable" else None
        checkpoint.save(directory, checkpoint_type, self.model, self.tokenizer, self.global_steps, optimizer)
        return {"path": str(directory), "checkpoint_type": checkpoint_type, "global_steps": self.global_steps}

    def load(self, directory: Path) -> dict[str, Any]:
        """Take weights, and whatever else the checkpoint holds, from a folder that `save` wrote.

        From a weights-only checkpoint the optimizer starts afresh. Accumulated gradients are dropped.
        Raises EngineError when the folder is incomplete or belongs to another architecture.
        """
        self._drop_gradients()
        learning_rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer = self._build_optimizer()
        self.optimizer.param_groups[0]["lr"] = self.optimizer.param_groups[1]["lr"] = learning_rate
        state = checkpoint.load(directory, self.model, self.optimizer)
        self.global_steps = state.global_steps
        return {"path": str(directory), "checkpoint_type": state.checkpoint_type, "global_steps": self.global_steps}

    def export_weights(self, path: Path) -> WeightSet:
        """Write the weights for a sampler; see `drydock.engine.weights`."""
        return WeightSet(path, self.global_steps, write_weights(self.model, path))

    def _build_optimizer(self) -> torch.optim.AdamW:
        settings = self.config.optimizer
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)

    def _drop_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._pending_calls = 0

    def _micro_batch(
        self, batch: TrainBatch, needed: np.ndarray, micro_batch: MicroBatch, width: int, totals: "_Totals"
    ) -> None:
        rows = list(micro_batch.rows)
        device = self.model.device

        def part(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array[rows, :width])).to(device)

        trains = bool((batch.loss_mask[rows] != 0).any())
        with torch.set_grad_enabled(trains):
            logprobs = row_logprobs(
                self._call, part(batch.input_ids), part(batch.targets), part(needed), micro_batch.prefix_length
            )
            totals.add_logprobs(rows, logprobs)
            if not trains:
                return
            kind = logprobs.dtype
            inputs = LossInputs(
                logprobs=logprobs,
                loss_mask=part(batch.loss_mask).to(kind),
                advantages=None if batch.advantages is None else part(batch.advantages).to(kind),
                old_logprobs=None if batch.old_logprobs is None else part(batch.old_logprobs).to(kind),
                row_weights=None
                if batch.row_weights is None
                else torch.from_numpy(batch.row_weights[rows]).to(device, kind),
            )
            output = batch.loss.function(inputs, batch.config, totals.denominators)
            loss = float(output.loss.detach())
            if not np.isfinite(loss):
                raise EngineError(
                    f"loss {batch.loss.name!r} is {loss} on rows {rows}; gradients since the last step are dropped"
                )
            output.loss.backward()
            totals.add(loss, output.means, output.maxima)

    def _layout_metrics(self, layout: Layout) -> dict[str, float]:
        metrics = {
            "prefix_sharing/row_tokens": float(layout.row_tokens),
            "prefix_sharing/computed_tokens": float(layout.computed_tokens),
            "prefix_sharing/micro_batches": float(len(layout.micro_batches)),
        }
        if self._unshared_reason is not None:
            metrics[f"prefix_sharing/off/{self._unshared_reason}"] = 1.0
        return metrics


class _Totals:
    """What a call reports, summed over its micro-batches."""

    def __init__(self, batch: TrainBatch) -> None:
        self._trained_positions = float((batch.loss_mask != 0).sum())
        self._trained_rows = float((batch.loss_mask != 0).any(axis=1).sum())
        self._loss = 0.0
        self._means: dict[str, float] = {}
        self._maxima: dict[str, float] = {}
        self._logprobs = np.zeros(batch.input_ids.shape, np.float32) if batch.wants_logprobs else None
        settings = batch.config.model_dump()
        self.denominators: Denominators = count_denominators(
            torch.from_numpy(batch.loss_mask),
            None if batch.row_weights is None else torch.from_numpy(batch.row_weights),
            batch_num_tokens=settings.get("batch_num_tokens"),
            global_batch_size=settings.get("global_batch_size"),
            dp_size=DATA_PARALLEL_RANKS,
        )

    def add(self, loss: float, means: Mapping[str, Tensor], maxima: Mapping[str, Tensor]) -> None:
        self._loss += loss
        for name, value in means.items():
            self._means[name] = self._means.get(name, 0.0) + float(value)
        for name, value in maxima.items():
            self._maxima[name] = max(self._maxima.get(name, float("-inf")), float(value))

    def add_logprobs(self, rows: list[int], logprobs: Tensor) -> None:
        if self._logprobs is not None:
            self._logprobs[rows, : logprobs.shape[1]] = logprobs.detach().float().cpu().numpy()

    def result(self) -> dict[str, Any]:
        outputs = {} if self._logprobs is None else {"logprobs": self._logprobs}
        return {"avg_loss": self._loss, "post_process_outputs": outputs}

    def metrics(self) -> dict[str, float]:
        count = max(self._trained_positions, 1.0)
        return {
            "tokens": self._trained_positions,
            "rows": self._trained_rows,
            **{name: value / count for name, value in self._means.items()},
            **self._maxima,
        }
