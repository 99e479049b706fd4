"""A curve in a terminal: a line of Braille dots, two by four in a character, and marks for single points."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

LINE, MARK = "cyan", "bold yellow"
MARK_SIGN = "◆"
_BLANK = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a dot by its row from the top and its column."""

type Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown: x from `left` to `right`, y from `low` to `high`; columns and rows are dots, row 0 the highest."""

    left: float
    right: float
    low: float
    high: float
    columns: int
    rows: int

    def column(self, x: float) -> int:
        return round((x - self.left) / (self.right - self.left or 1) * (self.columns - 1))

    def row(self, y: float) -> int:
        return round((self.high - y) / (self.high - self.low) * (self.rows - 1))


def plot(line: Points, marks: Points, width: int, height: int) -> list[Text]:
    """`height` lines of `width` characters, the last of them the x axis. [] where there is no point, or no room.

    line: by rising x; points that share a dot's column are shown as their mean. The y axis begins at 0 or below.
    """
    points = [*line, *marks]
    label = max((len(_label(value)) for _, value in points), default=0) + 1
    if not points or width < label + 10 or height < 3:
        return []
    frame = _frame(points, 2 * (width - label), 4 * (height - 1))
    dots = _dots(line, frame)
    cells = {(frame.row(y) // 4, frame.column(x) // 2) for x, y in marks}
    labels = {0: _label(frame.high), height - 2: _label(frame.low)}
    drawn = []
    for row in range(height - 1):
        signs = [
            MARK_SIGN if (row, column) in cells else _braille(dots, row, column) for column in range(width - label)
        ]
        line_of_dots = Text("".join(signs), style=LINE)
        line_of_dots.highlight_words([MARK_SIGN], MARK)
        drawn.append(Text.assemble((f"{labels.get(row, ''):>{label - 1}} ", "dim"), line_of_dots))
    ends = f"{frame.left:g}", f"{frame.right:g}"
    gap = width - label - len(ends[0])
    drawn.append(Text(f"{'':{label}}{ends[0]}{ends[1] if frame.right > frame.left else '':>{gap}}", style="dim"))
    return drawn


def _frame(points: Points, columns: int, rows: int) -> Frame:
    low, high = min(0.0, *(y for _, y in points)), max(y for _, y in points)
    xs = [x for x, _ in points]
    return Frame(min(xs), max(xs), low, high if high > low else low + 1.0, columns, rows)


def _dots(line: Points, frame: Frame) -> set[tuple[int, int]]:
    """(row, column) of every dot; neighbouring means are joined."""
    together: dict[int, list[float]] = {}
    for x, y in line:
        together.setdefault(frame.column(x), []).append(y)
    means = [(column, sum(values) / len(values)) for column, values in sorted(together.items())]
    dots = {(frame.row(y), column) for column, y in means}
    for (start, from_y), (end, to_y) in pairwise(means):
        before = frame.row(from_y)
        for column in range(start + 1, end + 1):
            row = frame.row(from_y + (to_y - from_y) * (column - start) / (end - start))
            dots |= {(between, column) for between in range(min(before, row), max(before, row) + 1)}
            before = row
    return dots


def _braille(dots: set[tuple[int, int]], row: int, column: int) -> str:
    bits = sum(
        bit
        for down, pair in enumerate(_DOTS)
        for right, bit in enumerate(pair)
        if (4 * row + down, 2 * column + right) in dots
    )
    return chr(_BLANK + bits) if bits else " "


def _label(value: float) -> str:
    return f"{value:.3g}"
