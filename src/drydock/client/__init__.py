"""Client of the training API: async `TrainingClient`; its sync face is `drydock.client.sync`."""

from drydock.client.results import ForwardBackwardResult, Generation, SaveResult, StepResult, WeightSync
from drydock.client.training_client import TrainingClient
from drydock.client.transport import Refused, RetryPolicy

__all__ = [
    "ForwardBackwardResult",
    "Generation",
    "Refused",
    "RetryPolicy",
    "SaveResult",
    "StepResult",
    "TrainingClient",
    "WeightSync",
]
