"""What every call passes before a route sees it: the path prefix, the token and the size of the body.

Plain ASGI: `/api/v2/databases/{database}/schemas/{schema}/{endpoint}` with any database, schema and endpoint name,
empty ones included, is cut off the path, so that routes are written relative to it. `/healthz` needs no token and
says nothing. The token comes as `Bearer` or as the password of `Basic` (credentials in a base URL).
"""

import base64
import binascii
import hmac
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drydock.service.problems import json_response
from drydock.service.settings import ServiceSettings

HEALTH_PATH = "/healthz"
ROOT = "/-"
_PREFIX = re.compile(r"/api/v2/databases/[^/]*/schemas/[^/]*/[^/]+")


class Gate:
    """ASGI wrapper: 401 without the token, 413 for a body that is too long, 404 outside the prefix."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._max_body_bytes = settings.max_body_bytes
        self._token = settings.token.get_secret_value().encode() if settings.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == HEALTH_PATH:
            await json_response({"status": "ok"})(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._token is not None and not _authorized(headers.get(b"authorization", b""), self._token):
            refusal = json_response(
                {"message": "missing or wrong token: send Authorization: Bearer <token>", "detail": "unauthorized"},
                401,
                {"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        prefix = _PREFIX.match(path)
        if prefix is None:
            await json_response({"message": f"no such path: {path}", "detail": "not found"}, 404)(scope, receive, send)
            return
        if _declared_length(headers.get(b"content-length")) > self._max_body_bytes:
            await self._too_long(scope, receive, send)
            return
        relative = path[prefix.end() :].removesuffix("/")
        scope = {**scope, "path": ROOT + relative, "raw_path": (ROOT + relative).encode(), "root_path": ""}
        counter = _BodyCounter(receive, self._max_body_bytes)
        try:
            await self._app(scope, counter, send)
        except BodyTooLong:
            await self._too_long(scope, receive, send)

    async def _too_long(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the body is longer than {self._max_body_bytes} bytes; send it in chunks"
        await json_response({"message": message, "detail": message}, 413, {"Connection": "close"})(scope, receive, send)


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


def _declared_length(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0


def _authorized(header: bytes, token: bytes) -> bool:
    scheme, _, credentials = header.partition(b" ")
    given = credentials.strip()
    if scheme.lower() == b"basic":
        try:
            given = base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != b"bearer":
        return False
    return hmac.compare_digest(given, token)
