"""The text of a growing list of tokens, token by token.

Text is told only once no later token can change it: bytes of an unfinished character are held back. A token is decoded
together with those of the last few that its text may depend on (tokenizers strip or join at word borders), so each
costs the same however long the list is, and the parts put together are the decoding of the whole.

Tokenizers spell unusual characters as bytes in two ways. Byte-level ones decode what is complete and show one
replacement character for what is not. Ones with byte fallback show a run of byte tokens as characters only when the
whole run is, so text that such a run belongs to waits for it, but never for more tokens than a character has bytes.
"""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
LONGEST_CHARACTER = 4
LONGEST_WINDOW = 64


class TokenText:
    """Decodes token ids without clean-up, as directly as the tokenizer allows; special tokens are left out or spelt.

    byte_fallback: whether unusual characters are runs of tokens `<0x00>` to `<0xFF>`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, skip_special: bool = True) -> None:
        self._skip_special = skip_special
        self.byte_fallback = "<0x00>" in tokenizer.get_vocab()
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)

    def __call__(self, ids: Sequence[int]) -> str:
        if self._backend is not None:
            return self._backend.decode(list(ids), skip_special_tokens=self._skip_special)
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=self._skip_special, clean_up_tokenization_spaces=False
        )
        return text if isinstance(text, str) else "".join(text)


class Detokenizer:
    """text: what is certain so far."""

    def __init__(self, decode: TokenText) -> None:
        self.text = ""
        self._decode = decode
        self._ids: list[int] = []
        self._context = 0
        self._settled = 0
        self._before = 0
        self._uncertain = ""

    def push(self, token: int) -> None:
        """Add a token."""
        self._ids.append(token)
        window = self._decode(self._ids[self._context :])
        told = len(self.text) - self._before
        certain = max(told, self._certain(window, told))
        self.text += window[told:certain]
        self._uncertain = window[certain:]
        if not self._uncertain or len(self._ids) - self._context > LONGEST_WINDOW:
            self.text += self._uncertain
            self._uncertain = ""
            self._context, self._settled = self._settled, len(self._ids)
            self._before = len(self.text) - len(self._decode(self._ids[self._context : self._settled]))

    def whole(self) -> str:
        """The text with whatever is uncertain at its end."""
        return self.text + self._uncertain

    def _certain(self, window: str, told: int) -> int:
        """Number of leading characters of the window that no later token can change."""
        if not window.endswith(UNFINISHED):
            return len(window)
        if not self._decode.byte_fallback:
            return len(window) - 1
        return told if len(self._ids) - self._settled <= LONGEST_CHARACTER else len(window)
