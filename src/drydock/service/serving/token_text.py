"""What one token stands for: its text within a text, and its bytes, which a part of a character has as well.

Decoding a token by itself loses both: decoders strip the space before the first token of a text, and show what is no
whole character as U+FFFD. So a token's text is what it adds after another one, and its bytes are read from how its
tokenizer spells bytes: byte-level ones as one character for each byte (GPT-2's table), ones with byte fallback (as
SentencePiece makes them) as tokens `<0x00>` to `<0xFF>`.
"""

import json
import re
from functools import cached_property
from typing import Final

from tokenizers import Tokenizer

UNFINISHED: Final = "\N{REPLACEMENT CHARACTER}"
BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-F]{2})>")
_BEFORE: Final = "a"
"""A token of nearly every vocabulary, decoded before the one that is asked for."""


def _byte_characters() -> dict[str, int]:
    """GPT-2's table: printable bytes of Latin-1 stand for themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


BYTE_OF: Final = _byte_characters()


class TokenText:
    """Text and bytes of the tokens of one tokenizer, special tokens spelt out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, token: int, *, first: bool = False) -> str:
        """What the token adds to a text, or as the first of one; U+FFFD where that is no whole character."""
        if first or self._before is None:
            return self._decode(token)
        return self._decode(self._before, token).removeprefix(_BEFORE)

    def bytes_of(self, token: int) -> list[int] | None:
        """The token's UTF-8 bytes, those of a part of a character too; None where its tokenizer does not say."""
        text = self.text(token)
        if UNFINISHED not in text:
            return list(text.encode())
        piece = self._tokenizer.id_to_token(token) or ""
        if (byte := BYTE_TOKEN.fullmatch(piece)) is not None:
            return [int(byte[1], 16)]
        if self._byte_level and all(character in BYTE_OF for character in piece):
            return [BYTE_OF[character] for character in piece]
        return list(text.encode()) if UNFINISHED in piece else None

    @cached_property
    def _before(self) -> int | None:
        """An id that decodes to `_BEFORE`, None where there is none."""
        found = self._tokenizer.token_to_id(_BEFORE)
        return found if found is not None and self._decode(found) == _BEFORE else None

    @cached_property
    def _byte_level(self) -> bool:
        """Whether the tokenizer's decoder reads pieces by GPT-2's table."""
        decoder = self._tokenizer.decoder
        described = json.loads(decoder.__getstate__()) if decoder is not None else {}
        return any(part.get("type") == "ByteLevel" for part in (described, *described.get("decoders", ())))

    def _decode(self, *tokens: int) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=False)
