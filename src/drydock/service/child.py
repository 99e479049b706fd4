"""Starting the API process from another one: `python -m drydock.service.server` and what the two say to each other.

A socket joins them. Over it the starter sends the settings (with their secrets, which therefore stand neither in the
command line nor in the environment) and the child answers with its port or with what is wrong. An attached child ends
when the socket closes; a detached one goes on.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import SecretStr

from drydock.deadline import deadline
from drydock.errors import DeadlineExceeded, ServiceError, UserError
from drydock.service.server import FORCED_END_S, TOKEN_VARIABLE
from drydock.service.service_file import RunningService
from drydock.service.settings import ServiceSettings

LOG_NAME = "service.log"


class ServiceChild:
    """A started API process."""

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket, log: Path) -> None:
        self._process = process
        self._link = link
        self._log = log

    @classmethod
    async def spawn(cls, settings: ServiceSettings) -> "ServiceChild":
        """Starts the process in a session of its own. Raises UserError when the state folder cannot be used."""
        output = _output(settings)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        with theirs, output:
            process = await asyncio.create_subprocess_exec(
                *(*_command(theirs), "--parent-pid", str(os.getpid())), **_surroundings(theirs, output)
            )
        child = cls(process, ours, settings.state_dir / LOG_NAME)
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(ours, _settings_line(settings))
        return child

    @property
    def pid(self) -> int:
        """The API process."""
        return self._process.pid

    async def port(self, start_timeout_s: float) -> int:
        """Waits until it listens; its port.

        Raises UserError with what it found wrong, ServiceError when it died, DeadlineExceeded.
        """
        loop = asyncio.get_running_loop()
        data = b""
        async with deadline("the training service to start", start_timeout_s, f"see {self._log}"):
            while not data.endswith(b"\n"):
                received = await loop.sock_recv(self._link, 65_536)
                if not received:
                    raise _died(await self._process.wait(), self._log)
                data += received
        return _port(data)

    async def wait(self) -> int:
        """Waits for the process to end; its exit code."""
        return await self._process.wait()

    def release(self) -> None:
        """Closes the link: an attached process ends."""
        self._link.close()

    async def stop(self) -> bool:
        """Ends the process and waits for that; False when it had to be killed."""
        self.release()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with deadline("the training service to end", FORCED_END_S + 1):
                await self._process.wait()
        except DeadlineExceeded:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            return False
        return True


def start_detached(settings: ServiceSettings, start_timeout_s: float) -> RunningService:
    """Starts the process, waits until it listens and leaves it alone. Raises what `ServiceChild.port` does."""
    output = _output(settings)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    started_at = time.time()
    with ours:
        with theirs, output:
            process = subprocess.Popen(_command(theirs), **_surroundings(theirs, output))
        ours.settimeout(start_timeout_s)
        log = settings.state_dir / LOG_NAME
        try:
            with contextlib.suppress(ConnectionError):
                ours.sendall(_settings_line(settings))
            data = ours.makefile("rb").readline()
            if not data:
                raise _died(process.wait(), log)
            port = _port(data)
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded("the training service to start", start_timeout_s, f"see {log}") from error
            raise
    return RunningService(process.pid, started_at, settings.url(port))


def _output(settings: ServiceSettings) -> BinaryIO:
    try:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (settings.state_dir / LOG_NAME).open("ab")
    except OSError as error:
        raise UserError(f"the state folder {settings.state_dir} cannot be used: {error}; name another") from error


def _command(link: socket.socket) -> tuple[str, ...]:
    return (sys.executable, "-m", "drydock.service.server", "--link-fd", str(link.fileno()))


def _surroundings(link: socket.socket, output: BinaryIO) -> dict[str, Any]:
    return {
        "stdin": subprocess.DEVNULL,
        "stdout": output,
        "stderr": output,
        "pass_fds": (link.fileno(),),
        "start_new_session": True,
        "env": {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE},
    }


def _port(data: bytes) -> int:
    said = json.loads(data)
    if "error" in said:
        raise UserError(said["error"])
    return said["port"]


def _died(code: int, log: Path) -> ServiceError:
    return ServiceError(f"the training service ended at its start with code {code}; see {log}")


def _settings_line(settings: ServiceSettings) -> bytes:
    def plain(value: Any) -> Any:
        return value.get_secret_value() if isinstance(value, SecretStr) else value

    fields = {key: plain(value) for key, value in settings.model_dump().items()}
    return json.dumps(fields, default=str).encode() + b"\n"
