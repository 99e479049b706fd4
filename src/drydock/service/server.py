"""Running the API process: bind, serve, end.

Everything that can be wrong with the settings (port taken, state folder in use, foreign database, certificate, no
token on an address that others reach) is found before the first call and raised as UserError. An end that takes too
long is forced. `python -m drydock.service.server` is how another process starts one (`child`); it ends on SIGTERM or
SIGINT and, attached to a parent, when that goes.
"""

import argparse
import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn

from drydock.errors import UserError
from drydock.service.app import create_app
from drydock.service.heap import keep_freed_memory
from drydock.service.process_death import die_with_parent
from drydock.service.service_file import owned
from drydock.service.service_log import service_log
from drydock.service.settings import ServiceSettings
from drydock.service.tokens import is_loopback

TOKEN_VARIABLE = "DRYDOCK_SERVICE_TOKEN"
KEEP_ALIVE_S = 300
CONNECTIONS_END_S = 2
FORCED_END_S = 8.0
KEPT_HEAP_BYTES = 16 << 20

logger = logging.getLogger(__name__)


def serve(
    settings: ServiceSettings, *, ready: Callable[[int], None] | None = None, watch_fd: int | None = None
) -> None:
    """Serves until a signal comes or `watch_fd` reaches its end; `ready` is called with the bound port.

    Without `ready` the address is printed. Raises UserError when the port is taken, the state folder or the
    certificate cannot be used, or the service would be open to other machines.
    """
    tls = _certificate(settings)
    keep_freed_memory(KEPT_HEAP_BYTES)
    with owned(settings.state_dir) as folder, _bound(settings.host, settings.port) as sock:

        def listening(port: int) -> None:
            folder.say(settings.url(port))
            (ready or partial(_announce, settings))(port)

        with service_log(settings.state_dir):
            asyncio.run(_serve(settings, sock, tls, listening, watch_fd))


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
    settings: ServiceSettings,
    sock: socket.socket,
    tls: ssl.SSLContext | None,
    ready: Callable[[int], None],
    watch_fd: int | None,
) -> None:
    app = create_app(settings)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CONNECTIONS_END_S,
        ),
        lambda: ready(sock.getsockname()[1]),
    )
    if tls is not None:
        server.config.load()
        server.config.ssl = tls
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
    print(f"drydock service listens on {settings.url(port)}", flush=True)
    if settings.tls_cert is None and not is_loopback(settings.host):
        print("warning: without TLS, tokens and data cross the network in the clear (tls_cert, tls_key)", flush=True)


def _certificate(settings: ServiceSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except OSError as error:
        files = f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key}"
        raise UserError(f"{files} cannot be used: {error}; give a PEM chain and its unencrypted key") from error
    return context


def _force_end_after(seconds: float) -> None:
    timer = threading.Timer(seconds, lambda: os._exit(1))
    timer.daemon = True
    timer.start()


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
    """Entry of the process that `child.ServiceChild` starts; the exit code."""
    parser = argparse.ArgumentParser(description="Drydock training service (started by another process)")
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, help="end with this process, and when the link closes")
    given = parser.parse_args(arguments)
    attached = given.parent_pid is not None
    if attached:
        die_with_parent(given.parent_pid, signal.SIGTERM)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with socket.socket(fileno=given.link_fd) as link:
        line = link.makefile("rb").readline()
        if not line:
            return 1
        settings = ServiceSettings.model_validate_json(line)

        def say(**fields: object) -> None:
            with contextlib.suppress(OSError):
                link.sendall(json.dumps(fields).encode() + b"\n")

        try:
            serve(settings, ready=lambda port: say(port=port), watch_fd=given.link_fd if attached else None)
        except UserError as error:
            say(error=str(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
