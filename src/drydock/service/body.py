"""Reading the bodies of calls: JSON objects and octet streams."""

import asyncio
import hashlib
import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from drydock.errors import WireError
from drydock.service.problems import Refusal, field_errors
from drydock.wire.blob import Bytes, parse_json
from drydock.wire.frame import decode_frame

SMALL_BYTES = 1 << 18


async def aside[D: Bytes, T](work: Callable[[D], T], data: D) -> T:
    """`work(data)`, off the event loop where reading so much would hold up other calls."""
    return await asyncio.to_thread(work, data) if len(data) > SMALL_BYTES else work(data)


def json_object(data: bytes) -> dict[str, Any]:
    """A JSON object; an empty body is an empty object. Raises Refusal 400."""
    if not data.strip():
        return {}
    try:
        value = parse_json(data, "the body")
    except WireError as error:
        raise Refusal(400, str(error)) from error
    if not isinstance(value, dict):
        raise Refusal(400, f"the body is a JSON {type(value).__name__}, not an object")
    if _SUSPECT.search(data):
        _refuse_unstorable(value)
    return value


_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
"""Escapes of the characters that no database and no UTF-8 text can hold; most bodies have none."""


def _refuse_unstorable(value: Any) -> None:
    """Raises Refusal 400 for a string that holds NUL or half of a surrogate pair, as a key or as a value."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if not is_text(item):
                raise Refusal(400, f"the body holds NUL or half of a surrogate pair in {item[:40]!r}; send plain text")
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            pending += item


def is_text(value: str) -> bool:
    """Whether every store and every answer can hold the string."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def object_or_frame(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object in a JSON body or a DSSST1 frame, and the frame's "op" object. Raises Refusal 400."""
    if data[:1] == b"{":
        return json_object(data), {}
    try:
        frame = decode_frame(data)
    except WireError as error:
        raise Refusal(400, str(error)) from error
    if not isinstance(frame.value, dict):
        raise Refusal(400, f"the frame holds a {type(frame.value).__name__}, not an object")
    return frame.value, frame.metadata


def model[M: BaseModel](kind: type[M], value: Any) -> M:
    """The value as a REST model. Raises Refusal 422 naming each field that is wrong."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise field_errors(error) from error


def wants_tensors(metadata: dict[str, Any]) -> bool:
    """Whether the frame's writer asked for DSSST1 results."""
    options = metadata.get("response_options")
    return isinstance(options, dict) and options.get("format") == "dssst1"


def idempotency(request: Request, data: bytes) -> tuple[str | None, str | None]:
    """The caller's Idempotency-Key, if any, and then the sha256 of path and body it belongs to."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None, None
    if not 0 < len(key) <= 255:
        raise Refusal(400, "Idempotency-Key: must have 1 to 255 characters")
    return f"key:{key}", hashlib.sha256(request.url.path.encode() + b"\0" + data).hexdigest()
