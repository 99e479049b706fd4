"""Whole conversations as text and token ids: the template once over everything, nothing kept, nothing incremental."""

import json
import re
from collections.abc import Sequence
from typing import Any

from builders.chat_families import Family
from tokenizers import Tokenizer

from drydock.chat.template import ChatTemplate

type Wire = dict[str, Any]

_OPEN, _CLOSE = "Zq7", "qZ"
_STAND_IN = re.compile(rf"{_OPEN}(\d+){_CLOSE}")
_MARKUP = re.compile(r"[<\[].*[>\]]")


class FullRendering:
    """One family's template and tokenizer; messages are in the wire's form.

    Text that a message spells like a special token gets a stand-in of letters and digits before the template is
    applied; the rendered text is cut at the real special tokens, and the pieces are tokenized one by one, those with
    stand-ins by a tokenizer in which the special tokens have other names. ids: the special tokens'.
    """

    def __init__(self, family: Family, template: ChatTemplate) -> None:
        self._template = template
        written = [token for token in family.added if token in family.source and _MARKUP.fullmatch(token)]
        self._texts = [*family.special, *written]
        self.ids = {text: template.tokenizer.token_to_id(text) for text in self._texts}
        self._everywhere = _any_of(self._texts)
        self._in_turns = _any_of(family.special)
        plain = json.loads(template.tokenizer.to_str())
        for token in plain["added_tokens"]:
            if token["content"] in self.ids:
                token["content"] = f"\ue000{token['id']}\ue000"
        self._plain = Tokenizer.from_str(json.dumps(plain))

    def text(self, messages: Sequence[Wire], tools: list[Wire] | None) -> str:
        """The conversation with the generation prompt. Raises TemplateError where the template refuses it."""
        return self._template.render([self._form(message) for message in messages], self._hidden(tools), True)

    def encode(self, text: str) -> list[int]:
        """Ids of a text that `text` gave, or of a piece of it that begins and ends at special tokens."""
        ids: list[int] = []
        place = 0
        for token in self._everywhere.finditer(text):
            ids += [*self._piece(text[place : token.start()]), self.ids[token[0]]]
            place = token.end()
        return ids + self._piece(text[place:])

    def _piece(self, piece: str) -> list[int]:
        told = _STAND_IN.sub(lambda found: self._texts[int(found[1])], piece)
        tokenizer = self._template.tokenizer if told == piece else self._plain
        return tokenizer.encode(told, add_special_tokens=False).ids

    def _form(self, message: Wire) -> Wire:
        pattern = self._in_turns if message["role"] == "assistant" else self._everywhere
        form = {"role": message["role"], "content": self._hidden(message.get("content") or "", pattern)}
        for key in ("tool_call_id", "reasoning_content"):
            if message.get(key):
                form[key] = self._hidden(message[key], pattern)
        if message.get("tool_calls"):
            form["tool_calls"] = [
                self._hidden({**call, "function": {**call["function"], "arguments": _object(call)}}, pattern)
                for call in message["tool_calls"]
            ]
        return form

    def _hidden(self, value: Any, pattern: re.Pattern[str] | None = None) -> Any:
        pattern = pattern or self._everywhere
        if isinstance(value, str):
            return pattern.sub(lambda found: f"{_OPEN}{self._texts.index(found[0])}{_CLOSE}", value)
        if isinstance(value, list):
            return [self._hidden(item, pattern) for item in value]
        if isinstance(value, dict):
            return {self._hidden(key, pattern): self._hidden(item, pattern) for key, item in value.items()}
        return value


def _object(call: Wire) -> Any:
    return json.loads(call["function"]["arguments"])


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))
