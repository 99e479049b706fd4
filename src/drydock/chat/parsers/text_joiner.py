"""Content around tool calls, joined while it grows.

Text without calls is told as it is, white space included. Where calls were cut out, white space beside them goes and
a line break stands between the pieces. So white space waits until something follows it.
"""


class TextJoiner:
    """The text told so far is the join of what `add` and `end` returned. strip_start: white space in front goes too."""

    def __init__(self, *, strip_start: bool = False) -> None:
        self._strip_start = strip_start
        self._held = ""
        self._begun = False
        self._cut = False

    def add(self, text: str) -> str:
        """Take more text; returns what can be told."""
        text = self._held + text
        if self._strip_start:
            text = text.lstrip()
        told = text.rstrip()
        self._held = text[len(told) :]
        if not told:
            return ""
        separator = "\n" if self._cut and self._begun else ""
        self._begun, self._cut, self._strip_start = True, False, False
        return separator + told

    def cut(self) -> None:
        """Something was cut out here."""
        self._held = ""
        self._cut = self._strip_start = True

    def end(self, *, strip: bool) -> str:
        """The text is over; returns the white space at its end, nothing with `strip`."""
        held, self._held = self._held, ""
        return "" if strip else held
