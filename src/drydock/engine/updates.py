"""From accumulated gradients to new weights: masters, clipping, schedule, optimizer.

The learning rate of a step is the optimizer's `lr` times the schedule's factor, until a step names a rate: that one
then holds until another is named, and the schedule is out of use.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from drydock.engine.checkpoint import Resumption, random_state, restore_random_state
from drydock.engine.master_weights import MasterWeights
from drydock.engine.optimizer_settings import OptimizerConfig, ScheduleConfig
from drydock.engine.optimizer_state import pack_optimizer, unpack_optimizer
from drydock.engine.optimizers import build_optimizer
from drydock.engine.schedules import rate_factor
from drydock.errors import EngineError, UserError


class Updates:
    """The optimizer of one model's trainable parameters and all that belongs to it."""

    def __init__(
        self, model: nn.Module, settings: OptimizerConfig, schedule: ScheduleConfig, clipping: float | None
    ) -> None:
        self._settings = settings
        self._schedule = schedule
        self._clipping = clipping
        self._masters = MasterWeights(model)
        self._fixed_rate: float | None = None
        self.optimizer = build_optimizer(self._masters.parameters, settings)

    def drop_gradients(self) -> None:
        """Forget what was accumulated."""
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, learning_rate: float | None, steps_taken: int) -> tuple[float, float]:
        """Clip, update, forget the gradients; the rate that was used and the gradient's norm before clipping.

        Raises UserError for a rate that is none, EngineError (weights unchanged, gradients dropped) when the norm is
        not finite.
        """
        if learning_rate is not None:
            if not (np.isfinite(learning_rate) and learning_rate >= 0):
                raise UserError(f"learning_rate must be a finite number >= 0, got {learning_rate}")
            self._fixed_rate = float(learning_rate)
        rate = self._fixed_rate
        if rate is None:
            rate = self._settings.lr * rate_factor(self._schedule, steps_taken)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        limit = float("inf") if self._clipping is None else self._clipping
        norm = float(torch.nn.utils.clip_grad_norm_(self._masters.parameters.values(), limit))
        if not np.isfinite(norm):
            self.drop_gradients()
            raise EngineError(f"the gradient norm is {norm}; the step was not taken, its gradients are dropped")
        self.optimizer.step()
        self._masters.publish()
        self.drop_gradients()
        return rate, norm

    def resumption(self) -> Resumption:
        """What a resumable checkpoint keeps."""
        return Resumption(
            optimizer_name=self._settings.kind,
            optimizer=pack_optimizer(self.optimizer, self._masters.parameters),
            masters=self._masters.copies(),
            fixed_rate=self._fixed_rate,
            random_state=random_state(),
        )

    def prepare(self, resumption: Resumption, source: str) -> torch.optim.Optimizer:
        """An optimizer with the state of `resumption`, for `resume`.

        Raises EngineError when it is of another kind, precision or model.
        """
        if resumption.optimizer_name != self._settings.kind:
            raise EngineError(
                f"{source} was written with optimizer {resumption.optimizer_name}, this job has {self._settings.kind}; "
                "load it without optimizer states, or start the job with the same optimizer"
            )
        own = self._masters.copies()
        if _shapes(own) != _shapes(resumption.masters):
            raise EngineError(
                f"{source} was written in another dtype or by another model: it holds {len(resumption.masters)} "
                f"float32 masters, this job {len(own)}; load it without optimizer states, or start the job with the "
                "same dtype"
            )
        optimizer = build_optimizer(self._masters.parameters, self._settings)
        unpack_optimizer(optimizer, self._masters.parameters, resumption.optimizer, source)
        return optimizer

    def resume(self, optimizer: torch.optim.Optimizer, resumption: Resumption) -> None:
        """Go on from `resumption`; `optimizer` is what `prepare` made of it. The model's weights are loaded already."""
        self.optimizer = optimizer
        self._masters.assign(resumption.masters)
        self._fixed_rate = resumption.fixed_rate
        restore_random_state(resumption.random_state)

    def restart(self) -> None:
        """Begin afresh from the model's present weights; a rate that a step named stays."""
        self.optimizer = build_optimizer(self._masters.parameters, self._settings)
        self._masters.restart()


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
