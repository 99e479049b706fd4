"""Server-sent events (the WHATWG's HTML standard, 9.2), from lines as they come."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class EventStream:
    """What was read of the event that is not complete yet.

    pending_chars: how much that is, ends of lines included.
    """

    pending_chars: int = 0
    _kind: str = "message"
    _data: list[str] = field(default_factory=list)

    def feed(self, line: str) -> tuple[str, str] | None:
        """Take a line without its end; return kind and data of the event that it completes, if so."""
        line = line.removesuffix("\r")
        if not line:
            kind, data = self._kind, self._data
            self._kind, self._data, self.pending_chars = "message", [], 0
            return (kind, "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
            self.pending_chars += len(line) + 1
        return None
