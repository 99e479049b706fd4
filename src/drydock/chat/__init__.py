"""Chat conversations as text and tokens: messages, templates, tool-call parsers (what proxy and serving share)."""

from drydock.chat.messages import Message, ToolCall
from drydock.chat.parsers import HermesParser, ParsedReply, ReplyDelta, ReplyStream, ToolCallParser
from drydock.chat.refusal import RequestRefused, error_body
from drydock.chat.reply_reader import ReplyReader, reader_for, reader_named
from drydock.chat.template import ChatTemplate

__all__ = [
    "ChatTemplate",
    "HermesParser",
    "Message",
    "ParsedReply",
    "ReplyDelta",
    "ReplyReader",
    "ReplyStream",
    "RequestRefused",
    "ToolCall",
    "ToolCallParser",
    "error_body",
    "reader_for",
    "reader_named",
]
