"""Whole conversations as token ids, with what many of them share tokenized once.

Two caches, both bounded: tokens of a head (system prompt and tools, shared by all rollouts of a run) and of a whole
prompt (shared by a group). The head ends at a special token, where texts can be tokenized apart.
"""

from collections.abc import Sequence
from typing import Any

from drydock.bounded_cache import BoundedCache
from drydock.chat.special_text import SpecialText
from drydock.chat.template_text import MARK, TemplateText

_HEADS = 64
_PROMPTS = 256


class FirstPrompts:
    """Prompts of one template that begin a branch."""

    def __init__(self, text: TemplateText, special: SpecialText) -> None:
        self._text = text
        self._special = special
        self._heads: BoundedCache[str, list[int]] = BoundedCache(_HEADS)
        self._prompts: BoundedCache[str, tuple[int, ...]] = BoundedCache(_PROMPTS)
        self._head_token, self._head_tokens = self._find_head_end()

    def ids(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> tuple[int, ...]:
        """Token ids of a conversation with the generation prompt. Raises TemplateError."""
        text = self._text.render_hidden(messages, tools, True)
        ids = self._prompts.get(text)
        if ids is None:
            cut = self._head_end(text)
            head = text[:cut]
            head_ids = self._heads.get(head)
            if head_ids is None:
                head_ids = self._heads.put(head, self._special.encode(head))
            ids = self._prompts.put(text, (*head_ids, *self._special.encode(text[cut:])))
        return ids

    def _head_end(self, text: str) -> int:
        """Where the head ends: behind the token that begins the first user message."""
        place = 0
        for _ in range(self._head_tokens):
            found = text.find(self._head_token, place)
            if found < 0:
                return 0
            place = found + len(self._head_token)
        return place

    def _find_head_end(self) -> tuple[str, int]:
        """The token before a user message that follows a system message, and how many of it there are until then."""
        user = {"role": "user", "content": MARK}
        messages = [{"role": "system", "content": "probe"}, user]
        head = self._text.render(messages if self._text.accepts(messages) else [user], None, True).partition(MARK)[0]
        tokens = [token for token in self._special.tokens if token in head]
        if not tokens:
            return "", 0
        last = max(tokens, key=lambda token: head.rfind(token) + len(token))
        return last, head.count(last)
