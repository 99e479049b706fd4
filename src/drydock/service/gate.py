"""What every call passes before a route sees it: token, rate, path prefix, size of the body.

Plain ASGI: `/api/v2/databases/{database}/schemas/{schema}/{endpoint}` with any database, schema and endpoint name,
empty ones included, is cut off the path, so that routes are written relative to it. `/healthz` and `/openapi.json`
need no token and tell nothing; paths below `SIGNED` carry their own signature, which their route checks. A service
without any token serves this machine only: it refuses calls that a web page may have made (a foreign Host, an Origin).
"""

import math
import re
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drydock.service.context import service_of
from drydock.service.identity import EVERYONE, Identity
from drydock.service.problems import json_response
from drydock.service.rate_limit import RateLimit
from drydock.service.settings import ServiceSettings
from drydock.service.tokens import Tokens, Unauthorized, is_loopback

HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"
OPENAPI_PATH = "/openapi.json"
SERVING = "/v1"
"""Prefix of the OpenAI-compatible routes, for clients that know a base URL and nothing of jobs."""
ROOT = "/-"
SIGNED = "/-/signed"
"""Prefix of routes that need no token because their URL is signed and has an end."""
_PREFIX = re.compile(r"/api/v2/databases/[^/]*/schemas/[^/]*/[^/]+")
_PORT = re.compile(r":\d+$")


class Gate:
    """ASGI wrapper: 401 without a token, 429 too many calls, 404 outside the prefix, 413 a body that is too long."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._max_body_bytes = settings.max_body_bytes
        self._rate = RateLimit(settings.rate_limit_per_s, 2 * settings.rate_limit_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        state: dict[str, Any] = scope.setdefault("state", {})
        if path == HEALTH_PATH:
            state["route"] = path
            await json_response({"status": "ok"})(scope, receive, send)
            return
        prefix = _PREFIX.match(path)
        inner = path if path in (METRICS_PATH, OPENAPI_PATH) or path.startswith(f"{SERVING}/") else None
        if prefix is not None:
            inner = ROOT + path[prefix.end() :].removesuffix("/")
            state["prefix"] = quote(prefix[0])
        tokens = service_of(Request(scope)).tokens
        refusal = self._refused(scope, inner, tokens, state)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope = {**scope, "path": inner, "raw_path": (inner or "").encode(), "root_path": ""}
        try:
            await self._app(scope, _BodyCounter(receive, self._max_body_bytes), send)
        except BodyTooLong:
            await self._too_long()(scope, receive, send)
        finally:
            state["route"] = getattr(scope.get("route"), "path", "none").removeprefix(ROOT) or "/"

    def _refused(self, scope: Scope, inner: str | None, tokens: Tokens, state: dict[str, Any]) -> Response | None:
        """The answer to a call that may not pass; otherwise who makes it is written into `state`."""
        headers = dict(scope["headers"])
        without_token = inner is not None and (inner == OPENAPI_PATH or inner.startswith(f"{SIGNED}/"))
        try:
            identity = EVERYONE if without_token else tokens.identify(headers.get(b"authorization", b""))
        except Unauthorized as error:
            return _message(401, str(error), {"WWW-Authenticate": "Bearer"})
        if tokens.open and (foreign := _foreign(headers)):
            return _message(403, f"{foreign}: a service without any token serves programs of this machine only")
        if not without_token:
            state["identity"] = identity
        wait_s = self._rate.wait_s(_bucket(identity, without_token))
        if wait_s > 0:
            seconds = {"Retry-After": str(math.ceil(wait_s))}
            return _message(429, "too many calls with this token: slow down and send it again", seconds)
        if inner is None:
            return _message(404, f"no such path: {scope['path']}")
        if _declared_length(headers.get(b"content-length")) > self._max_body_bytes:
            return self._too_long()
        return None

    def _too_long(self) -> Response:
        message = f"the body is longer than {self._max_body_bytes} bytes; send it in chunks"
        return _message(413, message, {"Connection": "close"})


class BodyTooLong(Exception):
    """A body without a declared length grew past the limit."""


class _BodyCounter:
    """`receive` of one call that stops a body at `limit` bytes."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise BodyTooLong
        return message


def _message(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return json_response({"message": message, "detail": message}, status, headers)


def _bucket(identity: Identity, without_token: bool) -> str:
    return "without a token" if without_token else identity.token_id


def _foreign(headers: dict[bytes, bytes]) -> str | None:
    """What shows that a call was not made by a program of this machine on its own behalf."""
    if b"origin" in headers:
        return f"Origin {headers[b'origin'].decode('latin-1')!r}"
    host = headers.get(b"host", b"localhost").decode("latin-1")
    return None if is_loopback(_PORT.sub("", host)) else f"Host {host!r}"


def _declared_length(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0
