"""Running the API process: bind, serve, end.

Everything that can be wrong with the settings (port taken, state folder in use, foreign database) is found before
the first call and raised as UserError. `python -m drydock.service.server` is the child of an EmbeddedService: it
says over an inherited socket where it listens, and it ends when that socket closes, its parent dies, or SIGTERM or
SIGINT comes. An end that takes too long is forced; the workers then die with this process.
"""

import argparse
import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import uvicorn
from pydantic import SecretStr

from drydock.errors import UserError
from drydock.service.app import create_app
from drydock.service.process_death import die_with_parent
from drydock.service.settings import ServiceSettings

TOKEN_VARIABLE = "DRYDOCK_SERVICE_TOKEN"
KEEP_ALIVE_S = 300
CONNECTIONS_END_S = 2
FORCED_END_S = 8.0

logger = logging.getLogger(__name__)


def serve(
    settings: ServiceSettings, *, ready: Callable[[int], None] | None = None, watch_fd: int | None = None
) -> None:
    """Serves until a signal comes or `watch_fd` reaches its end; `ready` is called with the bound port.

    Settings without a token get the one of `service_token`: a service is never open to everybody. Without `ready`
    the address is printed. Raises UserError when the port is taken or the state folder cannot be used.
    """
    with _owned(settings.state_dir), _bound(settings.host, settings.port) as sock:
        if settings.token is None:
            settings = settings.model_copy(update={"token": service_token(settings.state_dir)})
        asyncio.run(_serve(settings, sock, ready or partial(_announce, settings), watch_fd))


def service_token(state_dir: Path) -> SecretStr:
    """The token from DRYDOCK_SERVICE_TOKEN, else the one in `state_dir`/token, made (mode 0600) when missing."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return SecretStr(given)
    path = state_dir / "token"
    if not path.exists():
        state_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
    return SecretStr(path.read_text().strip())


class _Server(uvicorn.Server):
    """uvicorn with our own signal handling: its own raises the signal again, before our parts are closed."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    settings: ServiceSettings, sock: socket.socket, ready: Callable[[int], None], watch_fd: int | None
) -> None:
    app = create_app(settings)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CONNECTIONS_END_S,
        ),
        lambda: ready(sock.getsockname()[1]),
    )
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if server.should_exit:
            return
        server.should_exit = True
        _force_end_after(FORCED_END_S)
        service = getattr(app.state, "service", None)
        if service is not None:
            service.requests.release_holds()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if watch_fd is not None:
        loop.add_reader(watch_fd, stop)
    async with app.router.lifespan_context(app):
        await server.serve(sockets=[sock])
    logger.info("the service has ended")


def _announce(settings: ServiceSettings, port: int) -> None:
    source = TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else settings.state_dir / "token"
    print(f"drydock service listens on http://{settings.host}:{port} (token: {source})", flush=True)


def _force_end_after(seconds: float) -> None:
    timer = threading.Timer(seconds, lambda: os._exit(1))
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def _owned(state_dir: Path) -> Iterator[None]:
    """The state folder, made and locked against a second service."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = (state_dir / "service.lock").open("w")
    except OSError as error:
        raise UserError(f"the state folder {state_dir} cannot be used: {error}; name another") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another service runs on {state_dir}: stop it or name another state folder") from error
        yield


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only on sockets that name their protocol: 40 ms a call otherwise
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            problem = (
                f"port {port} of {host} is taken" if taken else f"cannot listen on {host}:{port}: {error.strerror}"
            )
            raise UserError(f"{problem}; choose another port, or 0 for a free one") from error
        yield sock


def main(arguments: list[str]) -> int:
    """Entry of the child that EmbeddedService starts; the exit code."""
    parser = argparse.ArgumentParser(description="Drydock training service (child of an embedded run)")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--parent-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    given = parser.parse_args(arguments)
    die_with_parent(given.parent_pid, signal.SIGTERM)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    token = os.environ.pop(TOKEN_VARIABLE, None)
    parent = socket.socket(fileno=given.parent_fd)
    settings = ServiceSettings(
        host=given.host, port=given.port, state_dir=given.state_dir, token=SecretStr(token) if token else None
    )

    def say(**fields: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            parent.sendall(json.dumps(fields).encode() + b"\n")

    try:
        serve(settings, ready=lambda port: say(port=port), watch_fd=given.parent_fd)
    except UserError as error:
        say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
