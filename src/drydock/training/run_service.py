"""The training service of a run: the one that is configured, or one of its own on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import SecretStr

from drydock.client import Refused, TrainingClient
from drydock.errors import UserError
from drydock.report.progress import RunProgress
from drydock.training.config import TrainerServiceConfig
from drydock.training.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the environment says and no file may: never part of the configuration, never logged."""

    service_token: SecretStr | None = None


@asynccontextmanager
async def run_service(
    settings: TrainerServiceConfig, secrets: Secrets, folder: RunFolder, start_s: float, progress: RunProgress
) -> AsyncIterator[TrainingClient]:
    """A client of the configured service, or of one that is started for this run and stopped after it.

    A service started here that ends by itself cancels the block, which then raises ServiceError (in a group).
    """
    if settings.base_url:
        async with _client(settings, settings.base_url, secrets.service_token) as client:
            yield client
        return
    from drydock.service.embedded import EmbeddedService

    progress.waiting("the embedded training service to start")
    async with (
        EmbeddedService(folder.service_state, start_timeout_s=start_s) as service,
        _client(settings, service.base_url, service.token) as client,
        asyncio.TaskGroup() as group,
    ):
        watch = group.create_task(service.ended(), name="watch the training service")
        try:
            yield client
        finally:
            watch.cancel()


async def check_service(settings: TrainerServiceConfig, secrets: Secrets, progress: RunProgress) -> None:
    """Ask a service that is configured for its capacity: a wrong address or token is found before anything exists."""
    if settings.base_url:
        progress.waiting(f"the training service at {settings.base_url} to answer")
        async with _client(settings, settings.base_url, secrets.service_token) as client:
            try:
                await client.capacity()
            except Refused as error:
                if error.status != 401:
                    raise
                said = "refused the token" if secrets.service_token else "wants a token"
                raise UserError(
                    f"the training service at {settings.base_url} {said} (HTTP 401): set DRYDOCK_SERVICE_TOKEN "
                    "(`drydock service token create` makes one, on the service's machine)"
                ) from None


def _client(settings: TrainerServiceConfig, base_url: str, token: SecretStr | None) -> TrainingClient:
    return TrainingClient(
        base_url, token=token, database=settings.database, schema=settings.schema_name, endpoint=settings.endpoint
    )
