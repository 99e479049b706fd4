"""What a dialect does: it puts one API's requests and answers into, and out of, the form that the proxy works with.

A dialect is a strategy without state. It never changes what is sampled: a field that would, and that the run does not
decide, is refused by name, and so is a field that nobody here knows. A turn is sampled whole and recorded before
anything of it is sent, so a stream is the turn told as the sequence of events that the API's clients expect.
"""

from collections.abc import Iterator
from typing import Protocol

from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import Completion
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.request import ChatRequest


class Dialect(Protocol):
    """One API.

    streamed_codes: codes of refusals that the API tells a streaming client as events, not by the status.
    """

    streamed_codes: frozenset[str]

    def parse(self, body: bytes, known: KnownMessages | None = None) -> ChatRequest:
        """Read a request body; raises RequestRefused that names the field which cannot be served.

        known: what was read from the rollout's requests before.
        """
        ...

    def render(self, completion: Completion) -> bytes:
        """The JSON answer."""
        ...

    def events(self, completion: Completion, request: ChatRequest) -> Iterator[bytes]:
        """The answer as server-sent events, first to last."""
        ...

    def refusal(self, error: RequestRefused) -> bytes:
        """The JSON error body."""
        ...

    def failure(self, error: RequestRefused) -> bytes:
        """The refusal as the last event or events of a stream that has begun."""
        ...
