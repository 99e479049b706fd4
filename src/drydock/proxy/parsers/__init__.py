"""Tool-call parsers, one a file."""

from drydock.proxy.parsers.base import ParsedReply, ToolCallParser
from drydock.proxy.parsers.hermes import HermesParser

__all__ = ["HermesParser", "ParsedReply", "ToolCallParser"]
