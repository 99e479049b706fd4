"""Tables for people: as wide as the terminal, or uncut where there is none."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

WIDTH_OF_A_PIPE = 400


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str | None]], *, title: str | None = None) -> None:
    """Prints rows of plain text; None is an empty cell."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell or "") for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    console.print(table)


def show_pairs(pairs: Iterable[tuple[str, str | None]]) -> None:
    """Prints name and value, a line each; a pair without a value is left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        print(f"{name:{width}}  {value}")


def moment(seconds: float | None) -> str:
    """A time since 1970 as UTC to the second, empty for None."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" if seconds is not None else ""


def quantity(value: float) -> str:
    """A number as people read it: 12,345 or 0.0312."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
