"""An HTTP server in the caller's event loop, on a free port, for as long as its `async with` block runs."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Self

import uvicorn
from starlette.applications import Starlette

from drydock.deadline import deadline
from drydock.errors import ProxyError

KEEP_ALIVE_S = 300
"""An idle pooled connection that the server closes first shows up in the agent as a failed call."""


class HttpServer:
    """Serves `app` at `host`. port: 0 outside the block."""

    def __init__(self, app: Starlette, host: str) -> None:
        self._host = host
        self._server = _Server(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                log_level="warning",
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=2,
            )
        )
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        listener = _listener(self._host)
        self._serving = asyncio.create_task(self._server.serve([listener]))
        ready = asyncio.create_task(self._server.ready.wait())
        async with deadline("the chat proxy to listen", 10):
            await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._server.ready.is_set():
            await self._serving
            raise ProxyError("the chat proxy's HTTP server ended before it listened")
        self.port = listener.getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.port = 0
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving


class _Server(uvicorn.Server):
    """uvicorn that leaves the process's signal handlers alone and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _listener(host: str) -> socket.socket:
    """A listening socket on a free port.

    The protocol is named because asyncio switches Nagle's algorithm off only where it is; left on, every reply waits
    about 40 ms for the client's delayed acknowledgement.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.bind((host, 0))
    except OSError as error:
        listener.close()
        raise ProxyError(f"the chat proxy cannot listen at {host!r}: {error}") from error
    listener.listen(1024)
    return listener
