"""A training service of one's own, for as long as a block runs.

The API process is a child in a session of its own (a terminal's Ctrl-C does not reach it before its owner has
cancelled the job). A socket joins the two: over it the child says where it listens, and when it closes, for whatever
reason, the child ends and its workers with it.
"""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from pydantic import SecretStr

from drydock.deadline import deadline
from drydock.errors import DeadlineExceeded, ServiceError, UserError
from drydock.service.server import FORCED_END_S, TOKEN_VARIABLE

logger = logging.getLogger(__name__)

LOG_NAME = "service.log"


class EmbeddedService:
    """Async context manager: a service on loopback that ends with the block, or with this process.

    state_dir: the service's folder, made when missing. port 0 takes a free one. token: made at random when None.
    Entering raises UserError (port taken, folder in use), ServiceError (it died) or DeadlineExceeded.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: SecretStr | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._state_dir = state_dir
        self._host = host
        self._port = port
        self._start_timeout_s = start_timeout_s
        self.token = token or SecretStr(secrets.token_urlsafe(32))
        self._process: asyncio.subprocess.Process | None = None
        self._link: socket.socket | None = None

    @property
    def base_url(self) -> str:
        """Where the service listens; only inside the block."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the API process, None outside the block."""
        return self._process.pid if self._process else None

    async def ended(self) -> NoReturn:
        """Wait for the API process to end, which it should not inside the block, and raise ServiceError saying so."""
        assert self._process is not None
        code = await self._process.wait()
        raise ServiceError(
            f"the training service {_ending(code)} in the middle of the run; see {self._state_dir / LOG_NAME}"
        )

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        try:
            self._state_dir.mkdir(parents=True, exist_ok=True)
            log = (self._state_dir / LOG_NAME).open("ab")
        except OSError as error:
            raise UserError(f"the state folder {self._state_dir} cannot be used: {error}; name another") from error
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._link.setblocking(False)
        with theirs, log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "drydock.service.server"),
                *("--host", self._host, "--port", str(self._port), "--state-dir", str(self._state_dir)),
                *("--parent-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, TOKEN_VARIABLE: self.token.get_secret_value()},
            )
        said = await self._first_word()
        if "error" in said:
            raise UserError(said["error"])
        self._port = said["port"]

    async def _first_word(self) -> dict:
        assert self._link is not None
        assert self._process is not None
        loop = asyncio.get_running_loop()
        data = b""
        log = self._state_dir / LOG_NAME
        async with deadline("the training service to start", self._start_timeout_s, f"see {log}"):
            while not data.endswith(b"\n"):
                received = await loop.sock_recv(self._link, 65_536)
                if not received:
                    code = await self._process.wait()
                    raise ServiceError(f"the training service ended at its start with code {code}; see {log}")
                data += received
        return json.loads(data)

    async def _stop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with deadline("the training service to end", FORCED_END_S + 1):
                await process.wait()
        except DeadlineExceeded:
            logger.warning("the training service (pid %d) did not end in time and is killed", process.pid)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
