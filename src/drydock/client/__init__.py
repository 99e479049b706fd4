"""Client of the training API: async `TrainingClient`; its sync face is `drydock.client.sync`."""

from drydock.client.access import ServiceAccess
from drydock.client.checkpoints import Checkpoint, CheckpointExport, ExportedFile
from drydock.client.forward import TokenScores
from drydock.client.job_calls import ExperimentRun, Identity
from drydock.client.log_stream import LogPage
from drydock.client.results import ForwardBackwardResult, Generation, SaveResult, StepResult, WeightSync
from drydock.client.retrying import RetryPolicy
from drydock.client.training_client import TrainingClient
from drydock.client.transport import Refused

__all__ = [
    "Checkpoint",
    "CheckpointExport",
    "ExperimentRun",
    "ExportedFile",
    "ForwardBackwardResult",
    "Generation",
    "Identity",
    "LogPage",
    "Refused",
    "RetryPolicy",
    "SaveResult",
    "ServiceAccess",
    "StepResult",
    "TokenScores",
    "TrainingClient",
    "WeightSync",
]
