"""A real training service behind an address at which some of its answers are altered, as if it were faulty."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask

from drydock.service.embedded import EmbeddedService

Alteration = Callable[[dict[str, Any]], None]
"""Changes the result of a finished request in place."""

_OF_THE_CONNECTION = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-encoding"})
IDENTITY = {"accept-encoding": "identity"}


class AlteredService:
    """A context manager. `alter` may be replaced while nothing runs; it sees every result that is a JSON object."""

    def __init__(self, state_dir: Path) -> None:
        self.alter: Alteration = lambda result: None
        self.token = ""
        self._state_dir = state_dir
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def base_url(self) -> str:
        """The altered service's address."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60), "the service did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *exception: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(30)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        async with EmbeddedService(self._state_dir) as service:
            self.token = service.token.get_secret_value()
            async with httpx.AsyncClient(base_url=service.base_url, timeout=120) as upstream:
                app = FastAPI()

                @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
                async def forward(request: Request) -> Response:
                    return await self._answer(request, upstream)

                config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
                self._server = uvicorn.Server(config)
                self._ready.set()
                await self._server.serve(sockets=[self._socket])

    async def _answer(self, request: Request, upstream: httpx.AsyncClient) -> Response:
        url = httpx.URL(request.url.path, query=request.url.query.encode())
        asked = upstream.build_request(
            request.method, url, content=await request.body(), headers=_passed_on(request.headers) | IDENTITY
        )
        answer = await upstream.send(asked, stream=True)
        headers = _passed_on(answer.headers)
        if not headers.get("content-type", "").startswith("application/json"):
            closing = BackgroundTask(answer.aclose)
            return StreamingResponse(answer.aiter_raw(), answer.status_code, headers, background=closing)
        await answer.aread()
        return Response(self._altered(answer), answer.status_code, headers)

    def _altered(self, answer: httpx.Response) -> bytes:
        body = answer.json()
        if isinstance(body, dict) and isinstance(body.get("result"), dict):
            self.alter(body["result"])
            return json.dumps(body).encode()
        return answer.content


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
