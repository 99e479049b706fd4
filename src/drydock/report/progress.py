"""What the terminal shows while a run goes on: one line that names the present wait, notes above it.

On a terminal the line is live, with the seconds waited; elsewhere each new wait is printed once, so that a log of the
output reads the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class RunProgress:
    """Named waits and notes of a run. `waiting` replaces the present wait; `counted` is a wait with a bar."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self.console, transient=True)
        self._current: TaskID | None = None

    def __enter__(self) -> "RunProgress":
        if self.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def waiting(self, text: str) -> None:
        """The run now waits for `text` ("the service to start")."""
        self._show(f"waiting for {text}", total=None)

    def note(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False)

    @contextmanager
    def counted(self, text: str, total: int) -> "Iterator[Counter]":
        """A wait of `total` parts; call `advance()` for each that is done."""
        self._show(text, total=total)
        yield Counter(self._bar, self._current)

    def _show(self, text: str, total: int | None) -> None:
        if self._current is not None:
            self._bar.remove_task(self._current)
        self._current = self._bar.add_task(text, total=total)
        if not self.console.is_terminal:
            self.console.print(f"… {text}", markup=False)


class Counter:
    """The bar of a counted wait; does nothing once another wait has taken its place."""

    def __init__(self, bar: Progress, task: TaskID | None) -> None:
        self._bar = bar
        self._task = task

    def advance(self) -> None:
        if self._task is not None and self._task in self._bar.task_ids:
            self._bar.advance(self._task)
