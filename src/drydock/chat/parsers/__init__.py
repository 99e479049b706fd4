"""Tool-call parsers, one a file."""

from drydock.chat.parsers.base import ParsedReply, ReplyDelta, ReplyStream, ToolCallParser
from drydock.chat.parsers.deepseek import DeepSeekParser
from drydock.chat.parsers.glm import GlmParser
from drydock.chat.parsers.harmony import HarmonyParser
from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.parsers.llama_json import LlamaJsonParser
from drydock.chat.parsers.mistral import MistralParser
from drydock.chat.parsers.qwen_xml import QwenXmlParser

__all__ = [
    "DeepSeekParser",
    "GlmParser",
    "HarmonyParser",
    "HermesParser",
    "LlamaJsonParser",
    "MistralParser",
    "ParsedReply",
    "QwenXmlParser",
    "ReplyDelta",
    "ReplyStream",
    "ToolCallParser",
]
