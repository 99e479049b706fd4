"""Reading a request's body, up to a limit."""

from starlette.requests import Request

from drydock.chat.refusal import RequestRefused

MAX_BODY_BYTES = 8 * 1024 * 1024


def check_size(size: int) -> None:
    """Raise RequestRefused (413) for a body of more bytes than the limit."""
    if size > MAX_BODY_BYTES:
        raise RequestRefused(f"the request body is larger than {MAX_BODY_BYTES} bytes", status=413)


async def read_body(request: Request) -> bytes:
    """The whole body. Raises RequestRefused (413) as soon as it is known to be larger than the limit."""
    declared = request.headers.get("content-length", "0")
    check_size(int(declared) if declared.isdecimal() else MAX_BODY_BYTES + 1)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        check_size(size)
        parts.append(part)
    return b"".join(parts)
