"""Harmony, the format of gpt-oss: a turn is a sequence of messages, each with a channel.

    <|channel|>analysis<|message|>THINKING<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>ANSWER<|return|>

(without line breaks). The generation prompt ends with `<|start|>assistant`, so the first message lacks that; the last
one lacks its end, which is the stop token. `analysis` is reasoning, `final` and `commentary` without a recipient are
content, and a message with a recipient is a call of that tool, in whichever channel and on either side of the channel
the recipient stands. A message that is none of these, or a call whose arguments are no JSON object, stays content as it
is written, its marks included.
"""

import re
from collections.abc import Callable
from enum import Enum, auto

from drydock.chat.parsers.base import ParsedReply, ReplyDelta, Tools, parse_whole, plain_call_id
from drydock.chat.parsers.growing_reply import GrowingReply
from drydock.chat.parsers.json_call import arguments_text, read_json, skip_space
from drydock.chat.parsers.marks import begun

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
_BREAKS = (*ENDS, START, CHANNEL)
_HEADER = re.compile(
    r"\s*(?:<\|start\|>)?\s*(?:assistant)?(?:\s+to=(?P<before>[^\s<]+))?\s*<\|channel\|>\s*(?P<channel>\w+)"
    r"(?:\s+to=(?P<after>[^\s<]+))?\s*(?:(?:<\|constrain\|>)?\s*\w+)?\s*"
)


class _Kind(Enum):
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()
    AS_WRITTEN = auto()


class HarmonyParser:
    """The parser; it has no state. without_calls: messages to a tool stay content."""

    format = "harmony"

    def __init__(self, *, without_calls: bool = False) -> None:
        self._without_calls = without_calls

    def parse(self, text: str, new_id: Callable[[], str], tools: Tools = None) -> ParsedReply:
        """Content, calls and reasoning of a whole text."""
        return parse_whole(self.stream(new_id, tools), text)

    def stream(self, new_id: Callable[[], str], tools: Tools = None) -> "HarmonyStream":
        """Read a text as it grows; the arguments are JSON, so `tools` says nothing new."""
        return HarmonyStream(new_id, without_calls=self._without_calls)

    def without_calls(self) -> "HarmonyParser":
        """The parser for a request that offers no tools."""
        return HarmonyParser(without_calls=True)

    def call_id(self, n: int, salt: str) -> str:
        """A tool-call id; the format prescribes no shape."""
        return plain_call_id(n, salt)


class HarmonyStream:
    """The buffer holds a header, or of a body what is not told yet."""

    def __init__(self, new_id: Callable[[], str], *, without_calls: bool) -> None:
        self._reply = GrowingReply(new_id)
        self._without_calls = without_calls
        self._buffer = ""
        self._kind: _Kind | None = None
        self._header = ""
        self._recipient = ""

    def feed(self, text: str) -> list[ReplyDelta]:
        """Take more text; what is certain by now."""
        self._buffer += text
        while self._read_header() if self._kind is None else self._read_body():
            pass
        return self._reply.take()

    def finish(self) -> tuple[list[ReplyDelta], ParsedReply]:
        """What was held back, and the reply."""
        if self._kind is None:
            self._as_written(self._buffer)
        else:
            self._end_body(self._buffer, "")
        self._buffer = ""
        return self._reply.finish()

    def _read_header(self) -> bool:
        header, mark, rest = self._buffer.partition(MESSAGE)
        if not mark:
            return False
        self._header, self._buffer = header + mark, rest
        found = _HEADER.fullmatch(header)
        recipient = (found["before"] or found["after"] or "") if found else ""
        self._recipient = recipient.removeprefix("functions.")
        self._kind = self._kind_of(found["channel"] if found else "", recipient)
        if self._kind is _Kind.REASONING:
            self._reply.new_reasoning()
        elif self._kind is _Kind.CONTENT:
            self._reply.new_content()
        return True

    def _kind_of(self, channel: str, recipient: str) -> _Kind:
        if recipient:
            return _Kind.AS_WRITTEN if self._without_calls else _Kind.CALL
        kinds = {"analysis": _Kind.REASONING, "final": _Kind.CONTENT, "commentary": _Kind.CONTENT}
        return kinds.get(channel, _Kind.AS_WRITTEN)

    def _read_body(self) -> bool:
        places = [(place, mark) for mark in _BREAKS if (place := self._buffer.find(mark)) >= 0]
        if not places:
            self._tell(len(self._buffer) - begun(self._buffer, _BREAKS))
            return False
        place, mark = min(places)
        body, end = self._buffer[:place], mark if mark in ENDS else ""
        self._buffer = self._buffer[place + len(end) :]
        self._end_body(body, end)
        return True

    def _tell(self, until: int) -> None:
        """Tell that much of the body, if its kind lets it be told before its end."""
        if self._kind is _Kind.REASONING:
            self._reply.reasoning(self._buffer[:until])
        elif self._kind is _Kind.CONTENT:
            self._reply.content(self._buffer[:until])
        else:
            return
        self._buffer = self._buffer[until:]

    def _end_body(self, body: str, end: str) -> None:
        if self._kind is _Kind.REASONING:
            self._reply.reasoning(body)
        elif self._kind is _Kind.CONTENT:
            self._reply.content(body)
        elif self._kind is _Kind.CALL and (arguments := _arguments(body)) is not None:
            self._reply.call(self._recipient, arguments)
        else:
            self._as_written(self._header + body + end)
        self._kind = None

    def _as_written(self, text: str) -> None:
        if text.strip():
            self._reply.new_content()
        self._reply.content(text)


def _arguments(body: str) -> str | None:
    found = read_json(body, skip_space(body, 0))
    if found is None or skip_space(body, found[1]) != len(body) or not isinstance(found[0], dict):
        return None
    return arguments_text(found[0])
