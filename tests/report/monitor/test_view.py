"""The live view, driven by keys, on runs that go on, are put back, end and vanish."""

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.trajectories import trajectory
from builders.watched_run import WatchedRun
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static

from drydock.errors import Blame
from drydock.report.monitor.rollout_screen import RolloutScreen
from drydock.report.monitor.rollouts_screen import RolloutsScreen
from drydock.report.monitor.run_watch import RunWatch
from drydock.report.monitor.step_table import StepTable
from drydock.report.monitor.view import MonitorApp
from drydock.rollout.outcome import Outcome
from drydock.training.diagnosis.finding import StepFinding
from drydock.training.run_folder import RunFolder

log = logging.getLogger("drydock.training.loop")

SIZES = [(80, 24), (140, 45)]


@pytest.fixture
def run(tmp_path: Path) -> WatchedRun:
    return WatchedRun.made(tmp_path / "run")


def view(run: WatchedRun, poll_s: float = 0.05) -> MonitorApp:
    return MonitorApp(RunWatch(run.folder.root, RunFolder), poll_s)


def text(app: MonitorApp, place: str) -> str:
    return str(app.screen_stack[0].query_one(place, Static).content)


def shown_steps(app: MonitorApp) -> list[int]:
    table = app.screen_stack[0].query_one(StepTable)
    return [int(str(table.get_row_at(row)[0])) for row in range(table.row_count)]


async def until(pilot: Pilot, seen: Callable[[], bool]) -> None:
    """Let the view go on until something is seen."""
    ends = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < ends, text(pilot.app, "#head")  # pyright: ignore[reportArgumentType]
        await pilot.pause(0.05)


@pytest.mark.parametrize("size", SIZES)
async def test_a_run_is_watched_from_its_start_to_its_end(run: WatchedRun, size: tuple[int, int]) -> None:
    app = view(run)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "there is no config.toml" in text(app, "#head"))
        with run.going_on():
            await until(pilot, lambda: f"watched  running (process {os.getpid()})" in text(app, "#head"))
            assert "step 0 of 4" in text(app, "#head")
            run.evaluation(0, 0.25)
            broken = trajectory("fix", None, repetition=1, outcome=Outcome.SANDBOX_ERROR, error="disk is full")
            run.step(1, trajectory("fix"), broken, usage__gpu_seconds=3.0)
            run.finding(StepFinding(1, "task_errors", "warn", "broken often", Blame.TASK, "mend it", about="fix"))
            await until(pilot, lambda: shown_steps(app) == [0, 1] and "mend it" in text(app, "#notes-text"))
            assert "used 3 GPU s; a step: 3 GPU s; a rollout: 1.5 GPU s" in text(app, "#head")
            assert "sandbox_error" in text(app, "#notes-text")
            assert "disk is full" in text(app, "#notes-text")
            assert "◆" in text(app, "#curve")
            for step in (2, 3):
                run.step(step, trajectory("fix", 0.0))
            await until(pilot, lambda: shown_steps(app) == [0, 1, 2, 3])
            assert "seen no more: task_errors (step 1)" in text(app, "#notes-text")
            run.back_to(2)
            await until(pilot, lambda: shown_steps(app) == [0, 1, 2])
        await until(pilot, lambda: "watched  finished" in text(app, "#head"))
        shutil.rmtree(run.folder.root)
        await until(pilot, lambda: "is gone: it was moved or deleted" in text(app, "#head"))
        await pilot.press("q")
    assert app.return_code == 0


async def test_the_keys_lead_from_a_step_to_every_token_and_back(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    run.step(1, trajectory("other"))
    run.step(2, trajectory("fix", 1.0, advantage=0.5), trajectory("fix", 0.0, repetition=1))
    app = view(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: shown_steps(app) == [1, 2])
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RolloutsScreen) and _rows(app) == 2)
        assert str(app.screen.query_one("#title", Static).content) == "step 2: 2 rollouts"
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RolloutScreen) and "attempt 1, step 2" in _page(app))
        await pilot.press("f", "escape", "escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("up", "enter")
        await until(pilot, lambda: isinstance(app.screen, RolloutsScreen) and _rows(app) == 1)
        shutil.rmtree(run.folder.trajectories(1, "train"))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RolloutScreen) and "cannot read" in _page(app))
        await pilot.press("escape", "r")
        await until(pilot, lambda: isinstance(app.screen, RolloutsScreen) and _rows(app) == 0)
        assert "no trajectory file in" in str(app.screen.query_one("#title", Static).content)


async def test_the_cursor_follows_the_newest_step_until_it_is_moved(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    run.step(1, trajectory())
    run.step(2, trajectory())
    app = view(run)
    async with app.run_test(size=(100, 30)) as pilot:
        table = app.query_one(StepTable)
        await until(pilot, lambda: table.row_count == 2 and table.cursor_row == 1)
        run.step(3, trajectory())
        await until(pilot, lambda: table.row_count == 3 and table.cursor_row == 2)
        await pilot.press("up", "up")
        run.step(4, trajectory())
        await until(pilot, lambda: table.row_count == 4)
        assert table.cursor_row == 0
        run.evaluation(4, 0.75)
        await until(pilot, lambda: "0.750" in map(str, table.get_row_at(3)))
        assert table.row_count == 4


async def test_who_reads_in_the_log_is_left_there(run: WatchedRun) -> None:
    app = view(run)
    async with app.run_test(size=(140, 45)) as pilot:
        with run.going_on():
            for number in range(30):
                log.info("sentence %d", number)
            tail = app.query_one("#log", RichLog)
            await until(pilot, lambda: "sentence 29" in _page(app) and tail.scroll_offset.y == tail.max_scroll_y)
            tail.focus()
            await pilot.press("home")
            await until(pilot, lambda: tail.scroll_offset.y == 0)
            log.info("sentence 30")
            await until(pilot, lambda: "sentence 30" in _page(app))
            await pilot.pause()
            assert tail.scroll_offset.y == 0


async def test_r_looks_at_once(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    app = view(run, poll_s=3600.0)
    async with app.run_test() as pilot:
        await until(pilot, lambda: "no step" in text(app, "#head"))
        run.step(1, trajectory())
        await pilot.press("r")
        await until(pilot, lambda: shown_steps(app) == [1])


async def test_it_can_be_left_in_the_middle_of_a_look(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    for step in range(1, 40):
        run.step(step, trajectory())
    for quits in (True, False):
        app = view(run, poll_s=0.0)
        async with app.run_test() as pilot:
            await until(pilot, lambda app=app: "step 39" in text(app, "#head"))
            if quits:
                await pilot.press("q")


async def test_what_may_not_be_read_is_said_and_read_once_it_may(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    run.folder.metrics.mkdir()
    app = view(run)
    async with app.run_test() as pilot:
        await until(pilot, lambda: f"{run.folder.metrics} cannot be read" in text(app, "#head"))
        run.folder.metrics.rmdir()
        run.step(1, trajectory())
        await until(pilot, lambda: shown_steps(app) == [1])


def _rows(app: MonitorApp) -> int:
    return app.screen.query_one(DataTable).row_count


def _page(app: MonitorApp) -> str:
    return "\n".join(line.text for line in app.screen.query_one(RichLog).lines)
