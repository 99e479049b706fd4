"""Marks in a growing text, of which a beginning may have come already, and the lines at whose beginning some stand."""

from collections.abc import Sequence


def begun(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of `text` that is the beginning of a mark (and not all of it)."""
    longest = 0
    for mark in marks:
        tail = text[max(0, len(text) - len(mark) + 1) :]
        place = tail.find(mark[0])
        while place >= 0 and not mark.startswith(tail[place:]):
            place = tail.find(mark[0], place + 1)
        longest = max(longest, len(tail) - place if place >= 0 else 0)
    return longest


def line_begins(told: str, *, before: bool) -> bool:
    """Whether only white space stands before the end of `told` in its line. before: whether that held before `told`."""
    _, line, rest = told.rpartition("\n")
    return not rest.strip() and (bool(line) or before)
