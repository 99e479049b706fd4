"""What `drydock eval` evaluates, and its configuration: that of a run, of which less is required."""

from dataclasses import dataclass
from typing import Self

from pydantic import model_validator

from drydock.errors import UserError
from drydock.proxy.endpoint.client import EndpointAddress
from drydock.training.config import RunConfig
from drydock.wire.rest import SourceCheckpoint


class EvalConfig(RunConfig):
    """The configuration of `drydock eval`: a run's, also without training tasks or, for an endpoint, without model."""

    @model_validator(mode="after")
    def _required_values(self) -> Self:
        if not (self.data.eval or self.data.train):
            raise ValueError("data.eval is required: Harbor task directories, or directories of them")
        return self


@dataclass(frozen=True, slots=True)
class EvalSubject:
    """What is evaluated: an endpoint's model; or the configured model, with the weights of a checkpoint if one is
    named."""

    checkpoint: SourceCheckpoint | None = None
    endpoint: EndpointAddress | None = None

    def check(self, config: RunConfig) -> None:
        """Raises UserError for what does not go together."""
        if self.endpoint is not None:
            if self.checkpoint is not None:
                raise UserError("--endpoint and --checkpoint name two models: leave one out")
            return
        if not config.trainer.policy.model.path:
            raise UserError(
                "no model is named: give trainer.policy.model.path=FOLDER_OR_HUB_ID, or --endpoint URL --model NAME"
            )
        if self.checkpoint is not None and config.service.address is None:
            raise UserError(
                "--checkpoint names one that a running service keeps: give service.base_url; a checkpoint in a run's "
                "folder is a model: trainer.policy.model.path=runs/NAME/checkpoints/step_N"
            )


def read_checkpoint(text: str) -> SourceCheckpoint:
    """`job_id/checkpoint_id`. Raises UserError."""
    job_id, slash, checkpoint_id = text.partition("/")
    if not (job_id and slash and checkpoint_id) or "/" in checkpoint_id:
        raise UserError(f"--checkpoint {text!r}: give JOB_ID/CHECKPOINT_ID")
    return SourceCheckpoint(source_job_id=job_id, checkpoint_id=checkpoint_id)
