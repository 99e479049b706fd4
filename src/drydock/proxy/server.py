"""The chat proxy: an OpenAI chat-completions endpoint on loopback, in the caller's event loop.

Each rollout has its own key and sees nothing but its own session. Only digests of keys are kept, so neither a record
nor a log nor a traceback of this module can show one. The route is a plain Starlette route that parses its body
itself, because requests carry whole histories.
"""

import asyncio
import contextlib
import hashlib
import logging
import secrets
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import uvicorn
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from drydock.bounded_cache import BoundedCache
from drydock.chat.parsers.base import ToolCallParser
from drydock.chat.refusal import RequestRefused
from drydock.chat.template import ChatTemplate
from drydock.deadline import deadline
from drydock.errors import ProxyError
from drydock.proxy.record import RolloutRecord
from drydock.proxy.sampler import Sampler
from drydock.proxy.session import RolloutSession
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_log import TurnLog

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 * 1024 * 1024
KEEP_ALIVE_S = 300
"""An idle pooled connection that the server closes first shows up in the agent as a failed call."""
REVOKED_KEYS = 16_384
"""Keys of ended rollouts whose late calls are told apart from calls with an unknown key."""


class ChatProxy:
    """Serves rollouts while its `async with` block runs. Sessions still open at the end are closed."""

    def __init__(
        self, template: ChatTemplate, parser: ToolCallParser, sampler: Sampler, settings: ProxySettings
    ) -> None:
        self._template = template
        self._parser = parser
        self._sampler = sampler
        stops = sorted({*settings.sampling.stop_token_ids, *template.stop_ids})
        sampling = settings.sampling.model_copy(
            update={"stop_token_ids": stops, "logprobs": settings.sampling.logprobs or 0}
        )
        self._settings = settings.model_copy(update={"sampling": sampling})
        self._open: dict[bytes, RolloutSession] = {}
        self._revoked: BoundedCache[bytes, weakref.ref[RolloutRecord]] = BoundedCache(REVOKED_KEYS)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        """URL up to and including the version segment."""
        if not self._port:
            raise ProxyError("the chat proxy is not running; enter its async context first")
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        app.add_route("/v1/chat/completions", self._chat, methods=["POST"])
        listener = _listener()
        config = uvicorn.Config(
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
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listener]))
        ready = asyncio.create_task(self._server.ready.wait())
        async with deadline("the chat proxy to listen", 10):
            await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._server.ready.is_set():
            await self._serving
            raise ProxyError("the chat proxy's HTTP server ended before it listened")
        self._port = listener.getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for session in list(self._open.values()):
            await session.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._port = 0

    def open_rollout(self, rollout_id: str, *, record_path: Path | None = None) -> RolloutSession:
        """Give a rollout its key. `record_path`: JSONL file of its turns.

        Raises ProxyError when the rollout is open already.
        """
        if any(session.rollout_id == rollout_id for session in self._open.values()):
            raise ProxyError(f"rollout {rollout_id!r} is already open at the chat proxy; rollout ids must be unique")
        if record_path is None and self._settings.turn_log is not None:
            record_path = self._settings.turn_log / f"{rollout_id.replace('/', '_')}.jsonl"
        key = secrets.token_urlsafe(32)
        digest = _digest(key)

        def revoke(session: RolloutSession) -> None:
            del self._open[digest]
            self._revoked.put(digest, weakref.ref(session.record))

        session = RolloutSession(
            rollout_id,
            base_url=self.base_url,
            api_key=key,
            template=self._template,
            parser=self._parser,
            sampler=self._sampler,
            settings=self._settings,
            turn_log=TurnLog(record_path),
            on_close=revoke,
        )
        self._open[digest] = session
        return session

    async def _chat(self, request: Request) -> Response:
        try:
            session = self._session(request.headers.get("authorization", ""))
            reply = await session.answer(await _read_body(request))
        except RequestRefused as refusal:
            return _json(refusal.status, refusal.body())
        except ClientDisconnect:
            return Response(status_code=400)
        return _json(reply.status, reply.body)

    def _session(self, authorization: str) -> RolloutSession:
        """The session whose key this is. Looking up a digest takes the same time for every wrong key."""
        scheme, _, key = authorization.partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        session = self._open.get(digest)
        if session is not None:
            return session
        revoked = self._revoked.get(digest)
        if revoked is None:
            raise RequestRefused("unknown API key", code="invalid_api_key", status=401)
        record = revoked()
        if record is not None:
            record.late_calls += 1
            logger.info("rollout %s: call after its end", record.rollout_id)
        raise RequestRefused("this rollout is over; its key is revoked", code="revoked", status=403)


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


def _listener() -> socket.socket:
    """A listening socket on a free loopback port.

    The protocol is named because asyncio switches Nagle's algorithm off only where it is; left on, every reply waits
    about 40 ms for the client's delayed acknowledgement.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


async def _read_body(request: Request) -> bytes:
    too_large = RequestRefused(f"the request body is larger than {MAX_BODY_BYTES} bytes", status=413)
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _json(status: int, body: bytes) -> Response:
    return Response(body, status_code=status, media_type="application/json")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
