"""Reading a model's sampled turn as an assistant message: reasoning, content and tool calls.

Which format a model writes is told by its chat template, which writes the same calls into the history: the marks of
each format are looked for in its text, the most specific first. A template without any of them is read as Hermes
(`format_known` is then False).
"""

from collections.abc import Callable

from drydock.chat.parsers.base import ParsedReply, ReplyStream, Tools, parse_whole
from drydock.chat.parsers.deepseek import DeepSeekParser
from drydock.chat.parsers.glm import GlmParser
from drydock.chat.parsers.harmony import HarmonyParser
from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.parsers.llama_json import LlamaJsonParser
from drydock.chat.parsers.marked_calls import MarkedCallParser
from drydock.chat.parsers.mistral import MistralParser
from drydock.chat.parsers.qwen_xml import QwenXmlParser
from drydock.chat.reasoning import MARKS, ReasoningMarks, ReasoningStream
from drydock.chat.template import ChatTemplate
from drydock.errors import UserError

_PARSERS: dict[str, Callable[[], MarkedCallParser | HarmonyParser]] = {
    "harmony": HarmonyParser,
    "deepseek": DeepSeekParser,
    "mistral": MistralParser,
    "glm": GlmParser,
    "qwen_xml": QwenXmlParser,
    "hermes": HermesParser,
    "llama_json": LlamaJsonParser,
}
_SIGNS: tuple[tuple[str, str], ...] = (
    ("<|channel|>", "harmony"),
    ("<｜tool▁call▁begin｜>", "deepseek"),
    ("[TOOL_CALLS]", "mistral"),
    ("<arg_key>", "glm"),
    ("<function=", "qwen_xml"),
    ("<tool_call>", "hermes"),
    ("<|python_tag|>", "llama_json"),
    ("<|start_header_id|>", "llama_json"),
)
"""A text in the template, and the format that it tells; the first one found decides."""

FORMATS: tuple[str, ...] = tuple(sorted(_PARSERS))
"""Names of the formats, for `reader_named`."""


class ReplyReader:
    """Reads the sampled turns of one model.

    format: name of the tool-call format. format_known: False where the template names none and Hermes is assumed.
    opens_reasoning: the generation prompt ends inside the thinking. parser: what reads the text after the thinking.
    """

    def __init__(
        self,
        parser: MarkedCallParser | HarmonyParser,
        marks: ReasoningMarks | None = None,
        *,
        opens_reasoning: bool = False,
        format_known: bool = True,
        format_name: str | None = None,
    ) -> None:
        self.format = format_name or parser.format
        self.format_known = format_known
        self.opens_reasoning = opens_reasoning
        self.parser = parser
        self._marks = marks

    def __repr__(self) -> str:
        return f"ReplyReader({self.format!r}{'' if self.format_known else ', assumed'})"

    def parse(self, text: str, new_id: Callable[[], str], tools: Tools = None) -> ParsedReply:
        """Read a whole turn (stop token removed, special tokens spelt).

        new_id gives a fresh tool-call id for each call; `tools` are the request's definitions, by which formats without
        types read arguments.
        """
        return parse_whole(self.stream(new_id, tools), text)

    def stream(self, new_id: Callable[[], str], tools: Tools = None) -> ReplyStream:
        """Read a turn as it grows; its deltas joined are what `parse` gives."""
        if self._marks is None or isinstance(self.parser, HarmonyParser):
            return self.parser.stream(new_id, tools)
        return ReasoningStream(self._marks, self.opens_reasoning, self.parser, new_id, tools)

    def call_id(self, n: int, salt: str) -> str:
        """A tool-call id in the shape that the format prescribes; different for each `n` of a `salt`."""
        return self.parser.call_id(n, salt)

    def without_calls(self) -> "ReplyReader":
        """The same reader for a request that offers no tools: what would be a call stays content."""
        return ReplyReader(
            self.parser.without_calls(),
            self._marks,
            opens_reasoning=self.opens_reasoning,
            format_known=self.format_known,
            format_name=self.format,
        )


def reader_for(template: ChatTemplate) -> ReplyReader:
    """The reader of a model, told by its chat template and special tokens."""
    found = next((name for sign, name in _SIGNS if sign in template.source), None)
    return _reader(found or "hermes", template, format_known=found is not None)


def reader_named(name: str, template: ChatTemplate) -> ReplyReader:
    """A reader of the format `name` (one of FORMATS). Raises UserError for another name."""
    if name not in _PARSERS:
        raise UserError(f"no tool-call format is called {name!r}; there are {', '.join(FORMATS)}")
    return _reader(name, template, format_known=True)


def _reader(name: str, template: ChatTemplate, *, format_known: bool) -> ReplyReader:
    marks = next((marks for marks in MARKS if _writes(template, marks)), None)
    return ReplyReader(_PARSERS[name](), marks, opens_reasoning=template.opens_reasoning, format_known=format_known)


def _writes(template: ChatTemplate, marks: ReasoningMarks) -> bool:
    return marks.closing in template.source or template.tokenizer.token_to_id(marks.closing) is not None
