"""Arguments between tags, whose text may hold such tags itself (a source file that a tool writes, say)."""

from collections.abc import Sequence

from drydock.chat.parsers.json_call import skip_space


def read_until(text: str, start: int, close: str, followers: Sequence[str]) -> tuple[str, int] | None:
    """The text from `start` to the first `close` that one of `followers` follows, and the place after that `close`.

    White space may stand before the follower. None where there is no such place.
    """
    end = text.find(close, start)
    while end >= 0:
        after = end + len(close)
        if text.startswith(tuple(followers), skip_space(text, after)):
            return text[start:end], after
        end = text.find(close, after)
    return None
