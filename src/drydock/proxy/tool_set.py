"""The tools of a request, with a key for caches that is computed once."""

import json
from functools import cached_property
from typing import Any


class ToolSet:
    """Tool definitions as the agent sent them. Compared by identity; the ledger keeps one per distinct set."""

    def __init__(self, tools: list[dict[str, Any]] | None) -> None:
        self.tools = tools

    @cached_property
    def key(self) -> str:
        """A text that is equal for tools that render equally (order of keys included)."""
        return json.dumps(self.tools)
