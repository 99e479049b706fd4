"""The training service of a run: the one that is configured, or one of its own on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from drydock.client import Refused, TrainingClient
from drydock.errors import ConfigError, UserError
from drydock.report.progress import RunProgress
from drydock.training.config import TrainerServiceConfig
from drydock.training.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the environment says and no file may: never part of the configuration, never logged."""

    service_token: SecretStr | None = None
    pat: SecretStr | None = None
    """The hosted service's personal access token; sent to `service.host` only."""

    def of(self, settings: TrainerServiceConfig) -> SecretStr | None:
        """What lets a client into the service that the settings name."""
        return self.service_token if settings.base_url else self.pat


@asynccontextmanager
async def run_service(
    settings: TrainerServiceConfig, secrets: Secrets, folder: RunFolder, start_s: float, progress: RunProgress
) -> AsyncIterator[TrainingClient]:
    """A client of the configured service, or of one that is started for this run and stopped after it.

    A service started here that ends by itself cancels the block, which then raises ServiceError (in a group).
    """
    if settings.address:
        async with service_client(settings, secrets) as client:
            yield client
        return
    from drydock.service.embedded import EmbeddedService

    progress.waiting("the embedded training service to start")
    async with (
        EmbeddedService(folder.service_state, start_timeout_s=start_s) as service,
        TrainingClient(service.base_url, token=service.token, **_names(settings)) as client,
        asyncio.TaskGroup() as group,
    ):
        watch = group.create_task(service.ended(), name="watch the training service")
        try:
            yield client
        finally:
            watch.cancel()


async def check_service(settings: TrainerServiceConfig, secrets: Secrets, progress: RunProgress) -> None:
    """Ask a service that is configured for its capacity: a wrong address or token is found before anything exists."""
    if settings.address:
        progress.waiting(f"the training service at {settings.address} to answer")
        async with service_client(settings, secrets) as client:
            try:
                await client.capacity()
            except Refused as error:
                if error.status != 401:
                    raise
                said = "refused the token" if secrets.of(settings) else "wants a token"
                raise UserError(
                    f"the training service at {settings.address} {said} (HTTP 401): {token_remedy(settings)}"
                ) from None


def service_client(settings: TrainerServiceConfig, secrets: Secrets) -> TrainingClient:
    """A client, to be entered, of the service that the settings name.

    Raises ConfigError when they name none, or a hosted one for which there is no token.
    """
    if settings.base_url:
        return TrainingClient(settings.base_url, token=secrets.service_token, **_names(settings))
    if settings.host is None:
        raise ConfigError("no training service is named: set service.base_url or service.host")
    if secrets.pat is None:
        raise ConfigError(
            f"service.host is {settings.host}, but there is no access token for it: set the environment variable "
            "ARCTIC_CORTEX_PAT"
        )
    return TrainingClient.from_pat(settings.host, secrets.pat, **_names(settings))


def token_remedy(settings: TrainerServiceConfig) -> str:
    """What to do when that service does not take the caller."""
    if settings.host and not settings.base_url:
        return "set ARCTIC_CORTEX_PAT to an access token that is valid"
    return "set DRYDOCK_SERVICE_TOKEN (`drydock service token create` makes one, on the service's machine)"


def _names(settings: TrainerServiceConfig) -> dict[str, Any]:
    """The names in the API's path."""
    return {"database": settings.database, "schema": settings.schema_name, "endpoint": settings.endpoint}
