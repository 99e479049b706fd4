"""Server-sent events (the `text/event-stream` of the HTML standard) as an async iterator that survives disconnections.

Our service offers them so that nobody has to poll. Each event has an id; after a lost connection the stream is opened
again with `Last-Event-ID` and goes on after the last event that arrived whole. An event may come twice, never not at
all. The stream is over with the event "end". A server that has no events at this path is told apart (`NoEvents`), so
that the caller can poll instead.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from drydock.client.call import Call
from drydock.client.transport import Refused, Transport
from drydock.errors import ServiceError

RECONNECT_S: Final = 0.25
_UNSERVED: Final = frozenset({404, 405, 406, 415, 501})


class NoEvents(Exception):
    """The server answers this path with something else than events: `answer`, None for a refusal."""

    def __init__(self, answer: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.answer = answer


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, its JSON object, and where the stream goes on after it."""

    name: str
    data: dict[str, Any]
    event_id: str


async def follow(
    transport: Transport, call: Call, path: str, params: Mapping[str, str] | None = None
) -> AsyncGenerator[ServerEvent]:
    """The events at `path`, up to and including "end".

    Waits without a limit of its own: the caller holds the call's deadline over each step. Raises NoEvents, or what
    `Transport.send` raises for a refusal.
    """
    last_id, opened = "", False
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        try:
            stream = transport.stream(call, path, params=params, headers=headers)
            async with stream as response:
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise NoEvents(_object(call, (await response.aread()).decode(errors="replace")))
                opened = True
                async for event in read_events(call, response.aiter_lines()):
                    last_id = event.event_id or last_id
                    yield event
                    if event.name == "end":
                        return
        except Refused as error:
            if not opened and error.status in _UNSERVED:
                raise NoEvents from error
            raise
        except httpx.TransportError as error:
            call.last_failure = f"lost connection to {transport.address}: {type(error).__name__}"
        await asyncio.sleep(RECONNECT_S)


async def read_events(call: Call, lines: AsyncIterator[str]) -> AsyncGenerator[ServerEvent]:
    """The events in a stream's lines; comments and an unfinished last event are dropped."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                value = value.removeprefix(" ")
                fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            continue
        if "data" in fields:
            yield ServerEvent(fields.get("event", "message"), _object(call, fields["data"]), fields.get("id", ""))
        fields = {}


async def next_within[T](call: Call, events: AsyncIterator[T]) -> T | None:
    """The next item under the call's deadline; None at the end."""
    async with call.limited():
        with contextlib.suppress(StopAsyncIteration):
            return await anext(events)
    return None


def _object(call: Call, data: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ServiceError(f"{call.label}: the answer is neither events nor a JSON object: {data[:200]}")
    return value
