"""The three forms in which a request's result travels as JSON: plain, one frame in an envelope, chunks in events.

A plain object is the result itself. A frame is base64 text in an envelope object. A frame over the body limit is a
run of `result_chunk` events, each one chunk with the sha256 of its bytes, delivered over pages.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from drydock.errors import WireError
from drydock.wire.blob import Bytes
from drydock.wire.chunks import parse_chunk, reassemble
from drydock.wire.frame import VERSION, decode_frame

RESULT_CHUNK: Final = "result_chunk"


def result_envelope(frame: Bytes) -> dict[str, Any]:
    """The object that carries a whole result frame."""
    return {
        "content_type": "application/octet-stream",
        "encoding": "base64",
        "wire_format": VERSION,
        "payload_b64": base64.b64encode(frame).decode("ascii"),
    }


def result_event(chunk: bytes) -> dict[str, Any]:
    """The event that carries one chunk of `split_result`."""
    return {
        "type": RESULT_CHUNK,
        "payload_b64": base64.b64encode(chunk).decode("ascii"),
        "payload_sha256": hashlib.sha256(chunk).hexdigest(),
    }


def read_result(result: Any) -> Any:
    """The result in a plain object or an envelope; metrics beside an envelope win over those inside it."""
    if not isinstance(result, Mapping) or result.get("wire_format") is None or "payload_b64" not in result:
        return result
    if result["wire_format"] != VERSION or result.get("encoding", "base64") != "base64":
        raise WireError(f"a result in wire format {result['wire_format']!r}, {result.get('encoding')!r} cannot be read")
    value = decode_frame(_decode_base64(result["payload_b64"])).value
    outer = result.get("metrics")
    if isinstance(value, dict) and isinstance(outer, Mapping):
        value["metrics"] = {**(value.get("metrics") or {}), **outer}
    return value


def read_result_event(event: Mapping[str, Any]) -> bytes:
    """The chunk in a `result_chunk` event. Raises WireError when its sha256 is given and differs."""
    chunk = _decode_base64(event.get("payload_b64"))
    announced = event.get("payload_sha256")
    if announced and hashlib.sha256(chunk).hexdigest() != str(announced).lower():
        raise WireError("a result chunk's sha256 is not the announced one: the data changed on the way")
    return chunk


def join_result(chunks: Iterable[bytes]) -> Any:
    """The result in the chunks of all `result_chunk` events, in any order."""
    return decode_frame(reassemble(parse_chunk(chunk) for chunk in chunks)).value


def _decode_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise WireError(f"a result's payload is not valid base64: {error}") from error
