"""The APIs that agents speak to the proxy, one a file."""

from drydock.proxy.dialects.anthropic import ANTHROPIC
from drydock.proxy.dialects.base import Dialect
from drydock.proxy.dialects.chat import CHAT
from drydock.proxy.dialects.responses import RESPONSES

__all__ = ["ANTHROPIC", "CHAT", "RESPONSES", "Dialect"]
