"""The log in the live view: always the last lines, and still where its reader is."""

from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from drydock.report.monitor.log_tail import LogTail, new_lines
from drydock.report.monitor.run_log import TAIL_LINES

LINES = st.lists(st.sampled_from(["a", "b"]), max_size=5).map(tuple)
LENGTHS = st.sampled_from([0, 1, TAIL_LINES - 2, TAIL_LINES, 2 * TAIL_LINES])


@given(LINES, LENGTHS, LINES, LENGTHS)
def test_new_lines_make_of_the_old_tail_the_new_one(
    first: tuple[str, ...], filling: int, more: tuple[str, ...], later: int
) -> None:
    log = ("-",) * filling + first
    before, now = log[-TAIL_LINES:], (log + more + ("+",) * later)[-TAIL_LINES:]
    added = new_lines(before, now)
    assert added is None or (before + added)[-TAIL_LINES:] == now
    assert len(more) + later >= TAIL_LINES or not before or len(added or ()) <= len(more) + later
    if before and len(more) + later < TAIL_LINES:
        assert added is not None


def test_another_log_is_none_that_went_on() -> None:
    assert new_lines(("a", "b"), ("b", "c")) is None
    assert new_lines(("a", "b"), ()) is None
    assert new_lines((), ("a",)) == ("a",)


class LogApp(App[None]):
    CSS = "#log { height: 8; } .-low #log { display: none; }"

    def compose(self) -> ComposeResult:
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
        self.tail = LogTail()
        yield self.tail

    def shown(self) -> list[str]:
        """The lines in sight."""
        top = self.tail.scroll_offset.y
        height = self.tail.scrollable_content_region.height
        return [line.text.rstrip() for line in self.tail.lines[top : top + height]]


def log_of(last: int) -> tuple[str, ...]:
    return tuple(f"line {number} {'x' * 100}" for number in range(1, last + 1))[-TAIL_LINES:]


def numbers(app: LogApp) -> list[int]:
    return [int(line.split()[1]) for line in app.shown()]


async def test_who_went_up_in_the_log_stays_there() -> None:
    app = LogApp()
    async with app.run_test(size=(60, 24)) as pilot:
        for last in (50, 51):
            app.tail.show(log_of(last))
            await pilot.pause()
            assert numbers(app)[-1] == last
        app.tail.focus()
        await pilot.press("pageup", "up")
        place = numbers(app)
        assert place[-1] < 51
        for last in (52, 198, 220):
            app.tail.show(log_of(last))
            await pilot.pause()
            assert numbers(app) == place
        assert len(app.tail.lines) == TAIL_LINES
        await pilot.press("end")
        await pilot.pause()
        for last in (221, 222):
            app.tail.show(log_of(last))
            await pilot.pause()
            assert numbers(app)[-1] == last
        app.tail.show(("another 1",))
        await pilot.pause()
        assert app.shown()[:1] == ["another 1"]
        assert len(app.tail.lines) == 1


async def test_a_log_without_room_is_shown_once_there_is_some() -> None:
    app = LogApp()
    async with app.run_test(size=(60, 10)) as pilot:
        for last in range(1, 300):
            app.tail.show(log_of(last))
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        assert numbers(app)[-1] == 299
        assert len(app.tail.lines) == TAIL_LINES
