"""A training service of one's own, for as long as a block runs.

The API process is a child in a session of its own (a terminal's Ctrl-C does not reach it before its owner has
cancelled the job). A socket joins the two (`child`): when it closes, for whatever reason, the child ends and its
workers with it.
"""

import contextlib
import logging
import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from pydantic import SecretStr

from drydock.errors import ServiceError
from drydock.service.child import LOG_NAME, ServiceChild
from drydock.service.service_file import kept_token
from drydock.service.settings import ServiceSettings

logger = logging.getLogger(__name__)


class EmbeddedService:
    """Async context manager: a service on loopback that ends with the block, or with this process.

    state_dir: the service's folder, made when missing. port 0 takes a free one. token: made at random when None.
    While it runs, the token is in a file of `state_dir` too, for this user's `drydock jobs --state-dir`.
    settings: further fields of ServiceSettings; workers end with the service unless `outlive_api_s` says otherwise.
    Entering raises UserError (port taken, folder in use), ServiceError (it died) or DeadlineExceeded.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        token: SecretStr | None = None,
        start_timeout_s: float = 60.0,
        **settings: Any,
    ) -> None:
        self.token = token or SecretStr(secrets.token_urlsafe(32))
        self._settings = ServiceSettings(state_dir=state_dir, token=self.token, **{"outlive_api_s": 0.0, **settings})
        self._start_timeout_s = start_timeout_s
        self._port = self._settings.port
        self._child: ServiceChild | None = None
        self._token_file = contextlib.ExitStack()

    @property
    def base_url(self) -> str:
        """Where the service listens; only inside the block."""
        return self._settings.url(self._port)

    @property
    def pid(self) -> int | None:
        """The API process, None outside the block."""
        return self._child.pid if self._child else None

    async def ended(self) -> NoReturn:
        """Wait for the API process to end, which it should not inside the block, and raise ServiceError saying so."""
        assert self._child is not None
        code = await self._child.wait()
        log = self._settings.state_dir / LOG_NAME
        raise ServiceError(f"the training service {_ending(code)} in the middle of the run; see {log}")

    async def __aenter__(self) -> Self:
        try:
            self._child = await ServiceChild.spawn(self._settings)
            self._port = await self._child.port(self._start_timeout_s)
            self._token_file.enter_context(kept_token(self._settings.state_dir, self.token.get_secret_value()))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        self._token_file.close()
        child, self._child = self._child, None
        if child is not None and not await child.stop():
            logger.warning("the training service (pid %d) did not end in time and was killed", child.pid)


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
