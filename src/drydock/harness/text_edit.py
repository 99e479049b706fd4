"""Edits of a text and what the model is shown of it, as pure functions.

Lines are what line breaks (`\\n`) separate; a text that ends in one has no empty line after it. Numbers begin at 1.
"""

from drydock.harness.custom_tool import ToolRefused

SNIPPET_LINES = 4
"""Lines shown before and after an edit."""


def lines_of(text: str) -> list[str]:
    """The lines without their breaks."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def replace_once(text: str, old: str, new: str) -> tuple[str, int]:
    """Put `new` in the only place where `old` stands; also the number of the line where that begins.

    Raises ToolRefused when `old` stands nowhere or in several places.
    """
    if not old:
        raise ToolRefused("old_str is empty; use insert to add text")
    if old == new:
        raise ToolRefused("old_str and new_str are the same")
    places = _places(text, old)
    if not places:
        hint = "; the file has CRLF line ends" if "\r\n" in text and "\n" in old else ""
        raise ToolRefused(f"old_str does not stand in the file word for word{hint}; nothing was changed")
    numbers = [text.count("\n", 0, place) + 1 for place in places]
    if len(places) > 1:
        where = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
        raise ToolRefused(
            f"old_str stands in {len(places)} places (lines {where}); make it longer so that it is unique"
        )
    place = places[0]
    return text[:place] + new + text[place + len(old) :], numbers[0]


def insert_after(text: str, line: int, new: str) -> str:
    """Put the lines of `new` after line `line`, 0 for the beginning. Raises ToolRefused for another."""
    count = len(lines_of(text))
    if not 0 <= line <= count:
        raise ToolRefused(f"insert_line is {line}, but the file has {count} lines; give 0 to {count}")
    parts = text.split("\n")
    return "\n".join([*parts[:line], *new.removesuffix("\n").split("\n"), *parts[line:]])


def view(text: str, view_range: list[int] | None) -> str:
    """The text with line numbers, all of it or lines `[first, last]` (-1: to the end)."""
    lines = lines_of(text)
    if view_range is None:
        return numbered(lines, 1) if lines else "[the file is empty]"
    if len(view_range) != 2:
        raise ToolRefused("view_range is two numbers, the first and the last line")
    first, last = view_range
    if last == -1:
        last = max(len(lines), first)
    if not 1 <= first <= min(last, len(lines)):
        raise ToolRefused(f"view_range is {view_range}, but the file has {len(lines)} lines")
    return numbered(lines[first - 1 : last], first)


def snippet(text: str, line: int, changed: int) -> str:
    """`changed` lines from line `line`, with some before and after."""
    first = max(1, line - SNIPPET_LINES)
    return numbered(lines_of(text)[first - 1 : line - 1 + changed + SNIPPET_LINES], first)


def numbered(lines: list[str], first: int) -> str:
    """Each line after its number, as `cat -n` writes them."""
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))


def _places(text: str, old: str) -> list[int]:
    places, place = [], text.find(old)
    while place != -1:
        places.append(place)
        place = text.find(old, place + 1)
    return places
