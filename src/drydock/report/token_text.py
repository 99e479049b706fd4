"""What each token of a row says, so that the pieces put together are the decoded row.

A token is decoded together with those before it, because tokenizers join at word borders; one that ends in the middle
of a character says nothing, and the one that completes it says the whole character.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
LONGEST_WINDOW = 16


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """One text a token, special tokens spelt out; control characters are as they were sampled (see `printable.py`)."""
    texts: list[str] = []
    start = done = 0  # ids[start:done] are told already and only context
    for place in range(len(ids)):
        told = tokenizer.decode(list(ids[start:done]), skip_special_tokens=False)
        window = tokenizer.decode(list(ids[start : place + 1]), skip_special_tokens=False)
        last = place + 1 == len(ids) or place + 1 - done > LONGEST_WINDOW
        if window.endswith(UNFINISHED) and not last:
            texts.append("")
            continue
        texts.append(window[len(told) :])
        start, done = done, place + 1
    return texts
