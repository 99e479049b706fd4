"""Tool-call parsers, one a file."""

from drydock.chat.parsers.base import ParsedReply, ToolCallParser
from drydock.chat.parsers.hermes import HermesParser

__all__ = ["HermesParser", "ParsedReply", "ToolCallParser"]
