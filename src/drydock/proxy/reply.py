"""An answer of the proxy in a dialect: what an HTTP response, or a call within the process, gives back."""

from dataclasses import dataclass

from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import Completion
from drydock.proxy.dialects.base import Dialect
from drydock.proxy.dialects.sse import MEDIA_TYPE
from drydock.proxy.request import ChatRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and media type of an answer."""

    status: int
    body: bytes
    media_type: str = "application/json"


def answered(dialect: Dialect, request: ChatRequest, completion: Completion) -> Reply:
    """The turn as `request` wants it: whole, or as events."""
    if request.stream:
        return Reply(200, b"".join(dialect.events(completion, request)), MEDIA_TYPE)
    return Reply(200, dialect.render(completion))


def refused(dialect: Dialect, error: RequestRefused, request: ChatRequest | None = None) -> Reply:
    """The refusal of a call; `request` is None where the refusal came before it was read."""
    if request is not None and request.stream and error.code in dialect.streamed_codes:
        return Reply(200, dialect.failure(error), MEDIA_TYPE)
    return Reply(error.status, dialect.refusal(error))
