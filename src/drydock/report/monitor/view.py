"""`drydock monitor`: a run's folder as a live view in the terminal. It reads, and changes nothing.

One worker polls the folder in a thread and shows what it found, so that a slow disk never freezes the keys. What is
drawn are lines of `panels` and rows of `columns`.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Static

from drydock.errors import DrydockError
from drydock.report.monitor.log_tail import LogTail
from drydock.report.monitor.panels import curve, dropped, evaluation_line, findings, head, outcomes
from drydock.report.monitor.rollouts_screen import RolloutsScreen
from drydock.report.monitor.run_state import RunState
from drydock.report.monitor.run_watch import RunWatch
from drydock.report.monitor.step_table import StepTable

POLL_S = 1.0


class MonitorApp(App[None]):
    """The view of one run; poll_s: seconds between two looks at its folder."""

    TITLE = "drydock monitor"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "view.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        ("r", "refresh", "refresh"),
    ]

    def __init__(self, watch: RunWatch, poll_s: float = POLL_S) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-high")]
        self.followed = watch
        self.poll_s = poll_s
        self.state: RunState | None = None
        self._wanted = asyncio.Event()

    def compose(self) -> ComposeResult:
        self.head, self.curve, self.notes = Static(id="head"), Static(id="curve"), Static(id="notes-text")
        self.table, self.log_tail = StepTable(), LogTail()
        yield self.head
        with Horizontal(id="upper"):
            yield self.curve
            with VerticalScroll(id="notes"):
                yield self.notes
        yield self.table
        yield self.log_tail
        yield Footer()

    def on_mount(self) -> None:
        self.table.focus()
        self.run_worker(self._follow(), exclusive=True)

    def action_refresh(self) -> None:
        """Look at once."""
        self._wanted.set()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._draw_curve)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if isinstance(event.data_table, StepTable) and event.row_key.value is not None:
            step = int(event.row_key.value)
            folders = [self.followed.files.trajectories(step, split) for split in ("train", "eval")]
            self.push_screen(RolloutsScreen(step, folders))

    async def _follow(self) -> None:
        while True:
            try:
                state = await asyncio.to_thread(self.followed.poll)
            except DrydockError as error:
                state = str(error)
            if not self.table.is_attached:
                return  # the view was closed meanwhile
            self._show(state)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self.poll_s)
            self._wanted.clear()

    def _show(self, state: RunState | str) -> None:
        """Show the run, or why it cannot be read."""
        if isinstance(state, str):
            self.head.update(Text(state, style="red"))
            return
        self.state = state
        notes = [*findings(state), *outcomes(state), *dropped(state), *evaluation_line(state)]
        self.head.update(_joined(head(state)))
        self.notes.update(_joined(notes))
        self.table.show(state)
        self._draw_curve()
        self.log_tail.show(state.log_tail)

    def _draw_curve(self) -> None:
        size = self.curve.content_size
        if self.state is not None and size.height:
            self.curve.update(_joined(curve(self.state, size.width, size.height)))


def _joined(lines: Iterable[Text]) -> Text:
    return Text("\n").join(lines)
