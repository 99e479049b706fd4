"""Tool calls of Qwen3-Coder and Qwen3.5, arguments between tags:

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A value is bare text without the line breaks beside its tags; its type is the one that the tool's JSON schema says. A
call without its outer tags, or with text between the tags, stays text.
"""

import re

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import skip_space
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser
from drydock.chat.parsers.typed_value import typed_arguments
from drydock.chat.parsers.xml_arguments import read_until

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>\n?")
_END_OF_VALUE, _END_OF_FUNCTION = "</parameter>", "</function>"


class QwenXmlParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "qwen_xml"
    openings = (OPEN,)
    closings = (CLOSE,)

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The call whose opening tag is at `start`."""
        function = _FUNCTION.match(text, start + len(OPEN))
        if function is None or not (name := function[1].strip()):
            return None
        place = function.end()
        pairs: list[tuple[str, str]] = []
        while parameter := _PARAMETER.match(text, place):
            value = read_until(text, parameter.end(), _END_OF_VALUE, ("<parameter=", _END_OF_FUNCTION))
            if value is None:
                return None
            pairs.append((parameter[1].strip(), value[0].removesuffix("\n")))
            place = skip_space(text, value[1])
        if not text.startswith(_END_OF_FUNCTION, place):
            return None
        end = skip_space(text, place + len(_END_OF_FUNCTION))
        if not text.startswith(CLOSE, end):
            return None
        return CallsRead(((name, typed_arguments(pairs, tools, name)),), end + len(CLOSE))
