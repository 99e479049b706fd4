"""The training engine: forward-backward calls that accumulate gradients, and the optimizer step.

The result of a call does not depend on how it was cut into micro-batches, on the order of its rows or on how far
they are padded: losses divide by denominators of the whole call, and every row is computed exactly, with or without
a shared prefix. (Dropout of LoRA adapters, off by default, is the one exception.)

What is trained is the whole model or, with `peft_config`, an adapter on it; everything else is the same for both.

A call is checked before anything is computed. If it fails later all the same (a loss that is not finite), the
gradients accumulated since the last step are dropped, because some micro-batches may already have added theirs.

Not thread-safe: one owner.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from drydock.engine import checkpoint
from drydock.engine.activation_checkpointing import recompute_activations
from drydock.engine.model import default_device, load_model, load_tokenizer
from drydock.engine.policy import Policy
from drydock.engine.settings import TrainingConfig, parse_settings
from drydock.engine.types import WeightSet
from drydock.engine.updates import Updates
from drydock.engine.weights import assign_weights, fingerprint, unique_weights, write_weights
from drydock.errors import EngineError, UserError

WEIGHT_FORMATS = ("lora", "vllm", "hf")


class TrainingEngine:
    """One policy under training.

    model_name: Hugging Face folder or hub id. training_config: see `drydock.engine.settings.TrainingConfig`.
    dtype: of the model's parameters; None is float32 on a CPU, bfloat16 (with float32 masters) on a GPU.
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
        self._base_fingerprint: str | None = None
        self._lora = self.config.peft_config
        if self._lora is not None:
            from drydock.engine.lora import attach_adapter

            attach_adapter(self.model, self._lora, seed=seed)
        if self.config.activation_checkpointing:
            recompute_activations(self.model)
        self._policy = Policy(
            self.model,
            max_seq_len=self.config.max_seq_len,
            max_tokens=self.config.mb_spec.max_tokens_per_mb,
            unshared_because=self._why_unshared(),
        )
        self._updates = Updates(self.model, self.config.optimizer, self.config.scheduler, self.config.gradient_clipping)
        self._pending_calls = 0

    @property
    def max_seq_len(self) -> int:
        """Longest row, in tokens."""
        return self._policy.max_seq_len

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer over the trained parameters (their float32 masters, where the model's are narrower)."""
        return self._updates.optimizer

    @property
    def prefix_sharing_off_because(self) -> str | None:
        """Why prefixes are not shared for this model, or None where they are."""
        return self._policy.unshared_because

    @property
    def pending_calls(self) -> int:
        """Forward-backward calls whose gradients wait for a step."""
        return self._pending_calls

    def forward_backward(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Add one call's gradients; see `drydock.engine.batch` for the request.

        Returns avg_loss (float), metrics (floats) and post_process_outputs (logprobs, entropy: float32 [B, T],
        predict-next, 0 where there is no next token; what was asked for).
        Raises UserError for a request that is refused (nothing changed), EngineError for a result that is not finite.
        """
        batch = self._policy.parse(request)
        if self._drops_out and batch.couples_rows:
            raise UserError(
                f"loss {batch.loss.name!r} looks at all rows of a call at once and cannot be trained with "
                "peft_config.lora_dropout; set it to 0"
            )
        try:
            with self._dropout():
                result = self._policy.run(batch)
        except BaseException:
            self._drop_gradients()
            raise
        self._pending_calls += 1
        return result

    def forward(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Log-probs of every real position under the present weights; no gradients, nothing changed.

        See `drydock.engine.policy.Policy.score`.
        """
        return self._policy.score(request)

    def step(self, learning_rate: float | None = None) -> dict[str, Any]:
        """Clip, update, clear the gradients. A given learning rate stays until another is given.

        Raises UserError when nothing was accumulated since the last step, EngineError (weights unchanged, gradients
        dropped) when the gradient norm is not finite.
        """
        if self._pending_calls == 0:
            raise UserError("step without gradients: no forward-backward call since the last step")
        try:
            rate, grad_norm = self._updates.step(learning_rate, self.global_steps)
        except EngineError:
            self._pending_calls = 0
            raise
        self._pending_calls = 0
        self.global_steps += 1
        return {"global_steps": self.global_steps, "last_lr": rate, "metrics": {"grad_norm": grad_norm}}

    def save(self, directory: Path, checkpoint_type: str = "resumable", *, merge: bool = False) -> dict[str, Any]:
        """Write a checkpoint folder, whole or not at all; see `drydock.engine.checkpoint`.

        merge: write the whole model with the adapter added in, in place of the adapter (weights-only).
        Raises UserError when `directory` exists, the type is unknown, or a resumable checkpoint is asked for while
        gradients are accumulated (they would be lost).
        """
        if checkpoint_type not in checkpoint.TYPES:
            raise UserError(f"unknown checkpoint_type {checkpoint_type!r}; known: {', '.join(checkpoint.TYPES)}")
        resumable = checkpoint_type == "resumable"
        if resumable and self._pending_calls:
            raise UserError("a resumable checkpoint cannot hold accumulated gradients; call step first")
        if resumable and merge:
            raise UserError("a resumable checkpoint keeps the adapter apart; merge goes with weights-only")
        weights, adapter = None, None
        if self._lora is not None:
            if merge:
                weights = self._merged()
            else:
                adapter = self._adapter_part()
        checkpoint.save(
            directory,
            self.model,
            self.tokenizer,
            self.global_steps,
            weights=weights,
            adapter=adapter,
            resumption=self._updates.resumption() if resumable else None,
        )
        return {"path": str(directory), "checkpoint_type": checkpoint_type, "global_steps": self.global_steps}

    def load(self, directory: Path, *, optimizer_states: bool = True) -> dict[str, Any]:
        """Take weights, and whatever else the checkpoint holds, from a folder that `save` wrote, or a Hugging Face one.

        From a weights-only checkpoint, or without `optimizer_states`, the optimizer starts afresh. Whole weights become
        the base of an adapter that has not been trained yet. Accumulated gradients are dropped.
        Raises EngineError when the folder is incomplete, damaged or belongs to another architecture, UserError when it
        does not go with how this engine trains.
        """
        contents = checkpoint.read(directory, dtype=self.model.dtype, resume=optimizer_states)
        self._check_kind(directory, contents)
        new_base = self._lora is not None and contents.adapter is None
        resumption = None if new_base else contents.resumption
        prepared = None if resumption is None else self._updates.prepare(resumption, f"checkpoint {directory}")
        if contents.adapter is not None:
            from drydock.engine.lora import assign_adapter

            assign_adapter(self.model, contents.adapter.tensors)
        else:
            assert contents.weights is not None
            assign_weights(self.model, contents.weights)
            self._base_fingerprint = None
        self._drop_gradients()
        if resumption is not None and prepared is not None:
            self._updates.resume(prepared, resumption)
        else:
            self._updates.restart()
        self.global_steps = 0 if new_base else contents.global_steps
        return {
            "path": str(directory),
            "checkpoint_type": contents.checkpoint_type,
            "global_steps": self.global_steps,
        }

    def export_weights(self, path: Path, weight_format: str | None = None) -> WeightSet:
        """Write the policy for a sampler; see `drydock.engine.weights` and `drydock.engine.lora`.

        weight_format: `lora` writes the adapter alone, `vllm` and `hf` the whole weights (an adapter added in); None is
        `lora` for a policy with an adapter. Raises UserError for an unknown format, or `lora` without an adapter.
        """
        if weight_format is not None and weight_format not in WEIGHT_FORMATS:
            raise UserError(f"unknown weight_format {weight_format!r}; known: {', '.join(WEIGHT_FORMATS)}")
        if self._lora is None:
            if weight_format == "lora":
                raise UserError("weight_format 'lora': this job trains all weights; leave it out, or use vllm or hf")
            mark = write_weights(unique_weights(self.model), path)
        elif weight_format in (None, "lora"):
            from drydock.engine.lora import write_adapter

            mark = write_adapter(path, self.model, self._lora, self._base_mark())
        else:
            mark = write_weights(self._merged(), path)
        return WeightSet(path, self.global_steps, mark)

    @property
    def _drops_out(self) -> bool:
        return self._lora is not None and self._lora.lora_dropout > 0.0

    def _dropout(self):
        if not self._drops_out:
            return nullcontext()
        from drydock.engine.lora import dropout_active

        return dropout_active(self.model)

    def _why_unshared(self) -> str | None:
        if not self.config.prefix_sharing:
            return "switched_off"
        return "lora_dropout" if self._drops_out else None

    def _drop_gradients(self) -> None:
        self._updates.drop_gradients()
        self._pending_calls = 0

    def _base_mark(self) -> str:
        if self._base_fingerprint is None:
            self._base_fingerprint = fingerprint(unique_weights(self.model))
        return self._base_fingerprint

    def _merged(self) -> dict[str, torch.Tensor]:
        from drydock.engine.lora import merged_weights

        return merged_weights(self.model)

    def _adapter_part(self) -> checkpoint.Adapter:
        from drydock.engine.lora import adapter_tensors

        assert self._lora is not None
        return checkpoint.Adapter(self._lora, self._base_mark(), self.model_name, adapter_tensors(self.model))

    def _check_kind(self, directory: Path, contents: checkpoint.Contents) -> None:
        adapter = contents.adapter
        if adapter is None:
            if self._lora is not None and self.global_steps > 0:
                raise UserError(
                    f"checkpoint {directory} holds whole weights, and this job has trained its adapter for "
                    f"{self.global_steps} steps on others; load it into a new job"
                )
            return
        if self._lora is None:
            raise UserError(
                f"checkpoint {directory} holds a LoRA adapter, this job trains all weights; start a job with the same "
                "peft_config, or save the adapter merged and load that"
            )
        if not self._lora.same_adapter(adapter.settings):
            raise UserError(
                f"checkpoint {directory} has peft_config {adapter.settings.model_dump()}, this job another; start a "
                "job with the same one"
            )
        if adapter.base_fingerprint != self._base_mark():
            raise EngineError(
                f"the adapter of checkpoint {directory} was trained on other weights ({adapter.base_model}, "
                f"fingerprint {adapter.base_fingerprint}) than this job's {self.model_name} ({self._base_mark()})"
            )
