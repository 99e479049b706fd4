"""Tool calls of GLM-4.5 and later, arguments between tags:

    <tool_call>NAME
    <arg_key>KEY</arg_key>
    <arg_value>VALUE</arg_value>
    </tool_call>

Line breaks between the tags may be missing (GLM-4.7). A string is bare text, anything else JSON; which it is, the
tool's JSON schema says.
"""

import re

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import skip_space
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser
from drydock.chat.parsers.typed_value import typed_arguments
from drydock.chat.parsers.xml_arguments import read_until

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_NAME = re.compile(r"\s*([^\s<>{}]+)\s*(?=<)")
_KEY = re.compile(r"<arg_key>([^<]+)</arg_key>\s*<arg_value>")
_END_OF_VALUE = "</arg_value>"


class GlmParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "glm"
    openings = (OPEN,)
    closings = (CLOSE,)

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The call whose opening tag is at `start`."""
        name = _NAME.match(text, start + len(OPEN))
        if name is None:
            return None
        place = name.end()
        pairs: list[tuple[str, str]] = []
        while key := _KEY.match(text, place):
            value = read_until(text, key.end(), _END_OF_VALUE, ("<arg_key>", CLOSE))
            if value is None:
                return None
            pairs.append((key[1].strip(), value[0]))
            place = skip_space(text, value[1])
        if not text.startswith(CLOSE, place):
            return None
        return CallsRead(((name[1], typed_arguments(pairs, tools, name[1])),), place + len(CLOSE))
