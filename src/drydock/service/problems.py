"""Refusals: which HTTP status and body a call that cannot be served is answered with.

The status decides whether the Cortex client tries again: it repeats 404, 409, 429 and 5xx up to ten times, so a
refusal that cannot heal uses 400, 403, 410, 412, 422 or 501 (reference: training-api.md section 1.7). Unknown jobs
and requests are the exception: the API says 404. Bodies are FastAPI's `{"detail": …}` with a `message` beside it.
"""

import json
import re
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from drydock.errors import DrydockError, UserError, WireError


class Refusal(Exception):
    """A call that is answered with `status`; `detail` is a message or a structured object with one."""

    def __init__(self, status: int, message: str, *, detail: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.detail = detail if detail is not None else message


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as Python's clients read it (NaN allowed, as in the API's own answers)."""
    try:
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, quoted from a caller's frame
        body = json.dumps(value, separators=(",", ":")).encode()
    return Response(body, status, headers, media_type="application/json")


def field_errors(error: ValidationError) -> Refusal:
    """422 whose message names each offending field.

    Of a field that may be one of several kinds pydantic tells what every kind lacks; what is said of the kind that was
    sent is kept, and the names of the kinds are left out.
    """
    found = [
        {
            "loc": [part for part in item["loc"] if not (isinstance(part, str) and _KIND.search(part))],
            "msg": item["msg"].removeprefix("Value error, "),
            "type": item["type"],
        }
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    items = [item for item in found if not (item["type"] in _WRONG_KINDS and _is_told_better(item, found))]
    message = "; ".join(f"{'.'.join(str(part) for part in item['loc']) or 'body'}: {item['msg']}" for item in items)
    return Refusal(422, message, detail=items)


_KIND = re.compile(r"[\[(]|^[A-Z]")
_WRONG_KINDS = frozenset({"list_type", "string_type", "model_type", "dict_type"})


def _is_told_better(item: dict[str, Any], items: list[dict[str, Any]]) -> bool:
    place = item["loc"]
    return any(other["type"] not in _WRONG_KINDS and other["loc"][: len(place)] == place for other in items)


async def answer_refusal(_: Request, error: Exception) -> Response:
    """Starlette's handler of Refusal."""
    assert isinstance(error, Refusal)
    return json_response({"message": str(error), "detail": error.detail}, error.status)


async def answer_http(_: Request, error: Exception) -> Response:
    """Starlette's handler of what its router refuses: an unknown path or method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return json_response({"message": error.detail, "detail": error.detail}, error.status_code, headers)


async def answer_error(_: Request, error: Exception) -> Response:
    """Starlette's handler of our own error tree: the caller's fault is 400, ours 500."""
    assert isinstance(error, DrydockError)
    status = 400 if isinstance(error, UserError | WireError) else 500
    return json_response({"message": str(error), "detail": str(error), "error_type": type(error).__name__}, status)
