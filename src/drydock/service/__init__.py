"""The training service: an API process without a model, and one worker process per sub-job."""

from drydock.service.settings import ServiceSettings

__all__ = ["ServiceSettings"]
