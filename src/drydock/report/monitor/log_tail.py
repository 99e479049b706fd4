"""The last lines of the run's log. They follow the log while its end is in sight; who went up stays there."""

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.widgets import RichLog

from drydock.report.monitor.run_log import TAIL_LINES


class LogTail(RichLog):
    """Takes over only the lines that are new; nothing while it is hidden, where nothing would drop old ones."""

    def __init__(self) -> None:
        super().__init__(id="log", max_lines=TAIL_LINES, auto_scroll=False)
        self._wanted: tuple[str, ...] = ()
        self._shown: tuple[str, ...] = ()

    def on_mount(self) -> None:
        self.anchor()

    def on_resize(self, event: events.Resize) -> None:
        self._catch_up(hidden=not event.size)

    def show(self, lines: tuple[str, ...]) -> None:
        """Show the last lines of the log as they are now, at most TAIL_LINES."""
        self._wanted = lines
        self._catch_up(hidden=not self.size)

    def _catch_up(self, *, hidden: bool) -> None:
        if hidden or self._wanted == self._shown:
            return
        added = new_lines(self._shown, self._wanted)
        if added is None:
            self.clear()
            self.anchor()
            added, self._shown = self._wanted, ()
        follows, place = self.is_vertical_scroll_end, self.scroll_offset.y
        for line in added:
            self.write(Text(line))
        dropped = len(self._shown) + len(added) - len(self._wanted)
        if dropped and not follows:
            self.scroll_to(y=max(0, place - dropped), animate=False, immediate=True)
        self._shown = self._wanted


def new_lines(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...] | None:
    """The lines that make `now` of `before` when the first of more than TAIL_LINES go; None where no lines do."""
    for known in range(min(len(before), len(now)), 0, -1):
        added = tuple(now[known:])
        if (*before, *added)[-TAIL_LINES:] == tuple(now):
            return added
    return None if before else tuple(now)
