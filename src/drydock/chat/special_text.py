"""Keeping text that only looks like a special token apart from the special tokens that the template writes.

A tool output may contain `<|im_end|>`. Rendered and tokenized as one text it would end the turn. So every such text in
a message is replaced by a stand-in before the template is applied (letters and digits, which trimming and JSON leave
alone; they begin with a nonce that no message can know), and after it the rendered text is cut at the tokens that are
really the template's. Pieces that hold stand-ins get their text back and are read by a second tokenizer, which does
not know the special tokens. Where no message contains such a text, and that is nearly always, nothing of this happens.

What counts: tokens flagged special, and other added tokens that look like markup and that the template writes
(`<think>` and `<tool_call>` of Qwen, `<｜User｜>` of DeepSeek). In assistant messages only flagged ones count: there
the others are what the model itself wrote.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from drydock.chat.messages import clean_text
from drydock.errors import TemplateError

_MARKUP = re.compile(r"[<\[].*[>\]]", re.DOTALL)
_DIGITS = 5


class SpecialText:
    """The special tokens of one template. tokens: text to id of all that structure a conversation."""

    def __init__(self, tokenizer: Tokenizer, source: str, origin: str) -> None:
        self._tokenizer = tokenizer
        self._origin = origin
        self._reader: Tokenizer | None = None
        self._added = added = tokenizer.get_added_tokens_decoder()
        self.flagged = {token.content: place for place, token in added.items() if token.special and token.content}
        self.tokens = self.flagged | {
            token.content: place
            for place, token in added.items()
            if not token.special and token.content in source and _MARKUP.fullmatch(token.content)
        }
        self._ids = frozenset(self.tokens.values())
        self._texts = sorted(self.tokens, key=lambda text: (-len(text), text))
        self._places = {text: place for place, text in enumerate(self._texts)}
        nonce = f"q{secrets.token_hex(8)}x"
        self._stand_in = re.compile(rf"{nonce}(\d{{{_DIGITS}}})")
        self._nonce = nonce
        self._all = _pattern(self._texts)
        self._flagged = _pattern([text for text in self._texts if text in self.flagged])

    def hidden(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message (as a template expects it) with stand-ins for what only looks like a special token."""
        pattern = self._flagged if message.get("role") == "assistant" else self._all
        return {key: value if key == "role" else self._hide(value, pattern) for key, value in message.items()}

    def hidden_tools(self, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tool definitions with stand-ins."""
        return [self._hide(tool, self._all) for tool in tools]

    def shown(self, text: str) -> str:
        """A rendered text with the stand-ins replaced by what they stand for."""
        if self._nonce not in text:
            return text
        return self._stand_in.sub(lambda found: self._texts[int(found[1])], text)

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered text: special tokens where the template wrote them, plain text at the stand-ins.

        Raises TemplateError where the tokenizer cannot read a special token's text as text.
        """
        if self._nonce not in text:
            return self._tokenizer.encode(clean_text(text), add_special_tokens=False).ids
        ids: list[int] = []
        place = 0
        for found in self._all.finditer(text):
            ids += self._encode_piece(text[place : found.start()])
            ids.append(self.tokens[found[0]])
            place = found.end()
        return ids + self._encode_piece(text[place:])

    def leading(self, text: str, place: int) -> str | None:
        """The special token that stands at `place` of a rendered text."""
        return max((token for token in self.tokens if text.startswith(token, place)), key=len, default=None)

    def token_start(self, text: str, place: int) -> int:
        """Where the special token begins within which `place` of a rendered text lies; `place` if there is none."""
        return next((found.start() for found in self._all.finditer(text) if found.start() < place < found.end()), place)

    def _encode_piece(self, piece: str) -> list[int]:
        if self._nonce not in piece:
            return self._tokenizer.encode(clean_text(piece), add_special_tokens=False).ids if piece else []
        if self._reader is None:
            self._reader = self._without_special_tokens()
        ids = self._reader.encode(clean_text(self.shown(piece)), add_special_tokens=False).ids
        if not self._ids.isdisjoint(ids):
            raise self._unreadable()
        return ids

    def _hide(self, value: Any, pattern: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            return pattern.sub(self._stand_in_for, value) if pattern.search(value) else value
        if isinstance(value, list):
            return [self._hide(item, pattern) for item in value]
        if isinstance(value, dict):
            return {self._hide(key, pattern): self._hide(item, pattern) for key, item in value.items()}
        return value

    def _stand_in_for(self, found: re.Match[str]) -> str:
        return f"{self._nonce}{self._places[found[0]]:0{_DIGITS}d}"

    def _without_special_tokens(self) -> Tokenizer:
        """The same tokenizer (its vocabulary shared, not copied) with the special tokens' texts unknown to it.

        Ids of the other added tokens must stay. The tokenizers library numbers tokens that are no words of the
        vocabulary in the order in which they are added, so special ones among them are replaced by texts that nobody
        writes. Raises TemplateError where that does not give the same ids.
        """
        reader = Tokenizer(self._tokenizer.model)
        if self._tokenizer.normalizer is not None:
            reader.normalizer = self._tokenizer.normalizer
        if self._tokenizer.pre_tokenizer is not None:
            reader.pre_tokenizer = self._tokenizer.pre_tokenizer
        for place, token in sorted(self._added.items()):
            if token.content not in self.tokens:
                reader.add_tokens([token])
                if reader.token_to_id(token.content) != place:
                    raise self._unreadable()
            elif reader.token_to_id(token.content) is None:
                reader.add_tokens([AddedToken(f"\x00{self._nonce}{place}\x00", normalized=False)])
        return reader

    def _unreadable(self) -> TemplateError:
        return TemplateError(
            f"the tokenizer of {self._origin} cannot read the text of its special tokens as plain text; a message that "
            "contains such a text cannot be told to the model"
        )


def _pattern(texts: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")
