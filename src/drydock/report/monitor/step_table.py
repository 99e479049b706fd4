"""The table of steps in the live view: only what changed is drawn anew, and it follows the newest step."""

from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.widgets import DataTable

from drydock.report.monitor.columns import table_rows, titles
from drydock.report.monitor.run_state import RunState

FEWEST_ROWS = 500
"""Of so many of the last steps there is always a row; of earlier ones `drydock trajectories` tells."""

_DROPPED_AT_ONCE = 100


class StepTable(DataTable[Text]):
    """Rows by step, the newest last; the cursor stays with the newest as long as nobody moves it."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "select_cursor", "rollouts of the step")]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self._shown: dict[int, tuple[str, ...]] = {}
        self._titles: tuple[str, ...] = ()

    def show(self, state: RunState) -> None:
        """Show the last steps of a run."""
        rows = table_rows(state, FEWEST_ROWS + len(state.rows) % _DROPPED_AT_ONCE)
        follows = not self._shown or self.cursor_row >= len(self._shown) - 1
        if titles(state) != self._titles:
            self._titles = titles(state)
            self.clear(columns=True)
            self._shown = {}
            for title in self._titles:
                self.add_column(Text(title, justify="right"), key=title)
        kept = list(self._shown)
        if list(rows)[: len(kept)] != kept:
            self._renew(rows)
        for step, cells in rows.items():
            if step not in self._shown:
                self.add_row(*map(_right, cells), key=str(step))
            elif cells != self._shown[step]:
                for title, cell in zip(self._titles, cells, strict=True):
                    self.update_cell(str(step), title, _right(cell), update_width=True)
        self._shown = rows
        if follows and rows:
            self.move_cursor(row=len(rows) - 1)

    def _renew(self, rows: dict[int, tuple[str, ...]]) -> None:
        """Begin again, with the cursor where it was; steps were taken back, or the oldest left the table."""
        at = list(self._shown)[self.cursor_row] if self._shown else None
        self.clear()
        self._shown = {}
        for step, cells in rows.items():
            self.add_row(*map(_right, cells), key=str(step))
            self._shown[step] = cells
        if at in rows:
            self.move_cursor(row=list(rows).index(at))


def _right(cell: str) -> Text:
    return Text(cell, justify="right")
