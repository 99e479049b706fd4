"""Reading a request's body, up to a limit."""

from starlette.requests import Request

from drydock.chat.refusal import RequestRefused

MAX_BODY_BYTES = 8 * 1024 * 1024


async def read_body(request: Request) -> bytes:
    """The whole body. Raises RequestRefused (413) as soon as it is known to be larger than the limit."""
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
