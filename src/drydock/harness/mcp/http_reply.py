"""The reply to an HTTP request as `curl --include` prints it, from lines as they come."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from drydock.harness.mcp.event_stream import EventStream
from drydock.harness.mcp.failures import NoAnswer
from drydock.harness.mcp.hiding import Hiding

MAX_BODY_CHARS = 4 << 20
"""Of a reply without its events, its head included; and of one event."""

SHOWN_CHARS = 500
"""Of the body of a reply that is an error."""

_STATUS = re.compile(r"HTTP/[\d.]+ (\d{3})(?: (.*))?")


@dataclass(slots=True)
class HttpReply:
    """status: 0 until it has come. headers: by name in lower case. body: lines of what is no event stream.

    hide: for what is shown of it.
    """

    hide: Hiding = field(default_factory=Hiding)
    status: int = 0
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    _in_head: bool = True
    _events: EventStream = field(default_factory=EventStream)
    _taken_chars: int = 0

    @property
    def has_head(self) -> bool:
        """Whether all headers have come."""
        return not self._in_head

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"

    def feed(self, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Take lines without their ends; return kind and data of each event. Raises NoAnswer for what is too long."""
        events = []
        for line in lines:
            if not self._in_head and self.is_stream and self.status < 300:
                event = self._events.feed(line)
                events += [event] if event is not None else []
            else:
                self._taken_chars += len(line) + 1
                if self._in_head:
                    self._head(line.rstrip("\r"))
                else:
                    self.body.append(line)
            if max(self._taken_chars, self._events.pending_chars) > MAX_BODY_CHARS:
                raise NoAnswer(f"it answered with more than {MAX_BODY_CHARS} characters")
        return events

    def problem(self) -> str | None:
        """What is wrong with a reply that is complete, or None."""
        if 200 <= self.status < 300:
            return None
        if not self.status:
            return "it answered with something that is not HTTP"
        said = self.hide("\n".join(self.body)).strip()[:SHOWN_CHARS]
        where = f" (to {self.hide(self.headers['location'])[:SHOWN_CHARS]})" if "location" in self.headers else ""
        status = f"{self.status} {self.hide(self.reason)[:SHOWN_CHARS]}".strip()
        return f"it answered with HTTP status {status}{where}{f': {said}' if said else ''}"

    def _head(self, line: str) -> None:
        if line:
            status = _STATUS.fullmatch(line)
            if status is not None:
                self.status, self.reason, self.headers = int(status[1]), status[2] or "", {}
            else:
                name, _, value = line.partition(":")
                self.headers[name.strip().lower()] = value.strip()
        elif self.status >= 200:
            self._in_head = False
