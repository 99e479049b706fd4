"""Every error that Drydock raises on purpose, and whose fault it is.

One tree: a class says who has to act (`blame`) and whether doing the same thing again can help (`retryable`).
A message says what failed, to which object, and what to do; it never holds a secret.
"""

from enum import StrEnum
from typing import ClassVar


class Blame(StrEnum):
    """Who has to act for the failure to go away."""

    TASK = "task"
    HARNESS = "harness"
    INFRASTRUCTURE = "infrastructure"
    MODEL = "model"
    USER = "user"


class DrydockError(Exception):
    """Base of the tree; never raised itself."""

    blame: Blame = Blame.INFRASTRUCTURE
    retryable: ClassVar[bool] = False

    @property
    def exit_code(self) -> int:
        """With what the `drydock` command ends."""
        return 2 if self.blame is Blame.USER else 1


class UserError(DrydockError):
    """What the user gave cannot work; the command line prints it without a traceback."""

    blame = Blame.USER


class ConfigError(UserError):
    """A setting is unknown, malformed or contradicts another."""


class TaskError(DrydockError):
    """A task directory is incomplete or its environment, tests or files are broken."""

    blame = Blame.TASK


class VerifierError(TaskError):
    """The verifier ended without a valid reward (none, NaN, or unparseable)."""


class WireError(DrydockError):
    """Bytes that are not a valid DSSST1 frame, chunk or request body."""

    blame = Blame.USER


class IllegalTransition(DrydockError):
    """A job or request was asked to change to a status that its present status does not allow."""


class ServiceError(DrydockError):
    """The training service refused a call or failed at it."""


class ServiceUnavailable(ServiceError):
    """The training service could not be reached or is overloaded."""

    retryable = True


class RequestFailed(ServiceError):
    """A data-plane request (generate, forward-backward, step, ...) ended as failed or cancelled.

    error_type: the service's name for the failure ("WorkerLost", "TrainingRewound", ...), None where it gave none.
    """

    def __init__(self, message: str, error_type: str | None = None) -> None:
        self.error_type = error_type
        super().__init__(message)


class JobFailed(ServiceError):
    """A job ended before, or instead of, doing what was asked of it."""


class WorkerLost(ServiceError):
    """The process of a sub-job died."""

    retryable = True


class ServiceRestarted(ServiceError):
    """A request was accepted, but the service restarted before its worker had begun it."""

    retryable = True


class TrainingRewound(ServiceError):
    """A training sub-job went back to its latest checkpoint; the message names what is lost with that."""


class EngineError(DrydockError):
    """A model cannot be loaded, or a batch cannot be computed."""

    blame = Blame.MODEL


class SandboxError(DrydockError):
    """A sandbox could not be started, used or removed."""

    retryable = True


class SandboxUnavailable(UserError):
    """This machine lacks what a sandbox needs; the message names the remedy."""


class RolloutShardError(DrydockError):
    """A process that runs rollouts could not start, died too often, or failed in Drydock itself."""


class HarnessError(DrydockError):
    """The agent failed for a reason of its own."""

    blame = Blame.HARNESS
    retryable = True


class ProxyError(HarnessError):
    """The chat proxy could not serve a call of the agent."""


class TemplateError(UserError):
    """The model's chat template is missing or cannot be rendered token-exactly."""


class DeadlineExceeded(DrydockError):
    """A named wait took longer than its limit."""

    retryable = True

    def __init__(self, waiting_for: str, seconds: float, hint: str = "") -> None:
        self.waiting_for = waiting_for
        self.seconds = seconds
        super().__init__(f"gave up waiting for {waiting_for} after {seconds:g} s" + (f": {hint}" if hint else ""))
