"""Tool calls of Mistral models after `[TOOL_CALLS]`: a JSON list of calls, or `NAME[ARGS]{...}` (tokenizer v11 on).

The newer form repeats the mark for each call; `[CALL_ID]...` may stand between name and arguments, and the tokens
`[ARGS]` may be missing. Ids that the model writes are not used, since nothing makes it write different ones. Tool-call
ids are nine letters and digits: Mistral's templates refuse any other.
"""

import hashlib
import re
import string

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import arguments_text, json_call, read_json, skip_space
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser

MARK = "[TOOL_CALLS]"
_NAME = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\]\s*)?(?=\{)")
_DIGITS = string.digits + string.ascii_letters
_ID_LENGTH = 9
_IDS = len(_DIGITS) ** _ID_LENGTH
_STEP = 8_366_379_594_239_805
"""Has no factor in common with `_IDS`, so that the ids of one salt are all different; about its golden section."""


class MistralParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "mistral"
    openings = (MARK,)
    closings = ("]", "}")

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The call, or list of calls, after the mark at `start`."""
        place = skip_space(text, start + len(MARK))
        if text.startswith("[", place):
            return _listed(text, place)
        name = _NAME.match(text, place)
        found = read_json(text, name.end()) if name else None
        if name is None or found is None:
            return None
        arguments = arguments_text(found[0])
        return None if arguments is None else CallsRead(((name[1], arguments),), found[1])

    def call_id(self, n: int, salt: str) -> str:
        """Nine letters and digits."""
        begin = int.from_bytes(hashlib.sha256(salt.encode()).digest())
        number = (begin + n * _STEP) % _IDS
        digits: list[str] = []
        for _ in range(_ID_LENGTH):
            number, digit = divmod(number, len(_DIGITS))
            digits.append(_DIGITS[digit])
        return "".join(digits)


def _listed(text: str, place: int) -> CallsRead | None:
    found = read_json(text, place)
    if found is None or not isinstance(found[0], list):
        return None
    calls = [call for value in found[0] if (call := json_call(value)) is not None]
    return CallsRead(calls, found[1]) if calls and len(calls) == len(found[0]) else None
