"""The outermost layer of the application: every call gets an id, one log line and its place in the metrics.

The id is the caller's `x-request-id` where that is short and plain, else a new one; it comes back in `x-request-id`
and `x-snowflake-request-id` and stands in every line that is logged on the call's behalf. The line names the path
without its query. A fault of ours is answered here, so that its answer carries the id too.
"""

import logging
import re
import time
import uuid
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drydock.service.metrics import Metrics
from drydock.service.problems import json_response

REQUEST_ID: ContextVar[str] = ContextVar("drydock_request_id", default="")
HUNG_UP = 499
"""Status in log and metrics of a call whose caller left before the answer began."""
_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

logger = logging.getLogger(__name__)
calls = logging.getLogger("drydock.service.calls")
"""One line a call; goes to service.jsonl only."""


class CallLog:
    """ASGI wrapper around all others."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _id_of(headers.get(b"x-request-id", b""))
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        REQUEST_ID.set(request_id)
        status = 0
        started = time.perf_counter()

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                value = request_id.encode()
                named = [(b"x-request-id", value), (b"x-snowflake-request-id", value)]
                message = {**message, "headers": [*message.get("headers", []), *named]}
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except Exception as error:
            logger.exception("%s %s failed inside the service", scope["method"], scope["path"])
            if not status:
                text = f"internal error: {type(error).__name__} (request {request_id}; see the service's log)"
                answer = {"message": text, "detail": text, "error_type": type(error).__name__}
                await json_response(answer, 500)(scope, receive, tell)
        finally:
            seconds = time.perf_counter() - started
            identity = state.get("identity")
            fields = {
                "user": identity.user if identity else None,
                "method": scope["method"],
                "path": scope["path"],
                "status": status or HUNG_UP,
                "ms": round(seconds * 1000, 1),
            }
            calls.info("call", extra={"fields": fields})
            held = b"wait=" in headers.get(b"prefer", b"") or b"text/event-stream" in headers.get(b"accept", b"")
            self._metrics.observe(state.get("route", "none"), scope["method"], status or HUNG_UP, seconds, held=held)


def _id_of(given: bytes) -> str:
    text = given.decode("latin-1")
    return text if _SANE_ID.fullmatch(text) else uuid.uuid4().hex
