"""The view printed once: as tables for people, or as JSON for programs."""

from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from drydock.report.monitor.columns import table_rows, titles
from drydock.report.monitor.panels import curve, dropped, evaluation_line, findings, head, outcomes
from drydock.report.monitor.run_state import RunState

STEPS, LOG_LINES = 10, 8
PLOT_WIDTH, PLOT_HEIGHT = 100, 12
_GAP = 2


def print_state(state: RunState, console: Console) -> None:
    """Everything that the live view shows, one below the other."""
    console.print(*head(state), sep="\n")
    for part in (curve(state, min(console.width, PLOT_WIDTH), PLOT_HEIGHT), list(evaluation_line(state))):
        if part:
            console.print(*part, sep="\n")
    rows = table_rows(state, STEPS)
    if rows:
        console.print(step_table(state, rows, console.width))
    for title, part in (
        ("outcomes of the last step", list(outcomes(state))),
        ("diagnosis", list(findings(state))),
        ("dropped tasks", list(dropped(state))),
        ("log", [Text(line, overflow="ellipsis", no_wrap=True) for line in state.log_tail[-LOG_LINES:]]),
    ):
        if part:
            console.print(Group(Text(title, style="bold"), *part, Text()))


def step_table(state: RunState, rows: dict[int, tuple[str, ...]], width: int) -> Table:
    """The last steps, without columns that are empty and those for which there is no room."""
    columns = list(zip(titles(state), *rows.values(), strict=True))
    columns = [column for column in columns if any(column[1:])]
    while sum(max(map(len, column)) + _GAP for column in columns) >= width:
        del columns[-1]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for title, *_ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for cells in list(zip(*columns, strict=True))[1:]:
        table.add_row(*cells)
    return table


def as_json(state: RunState, steps: int = STEPS) -> dict[str, Any]:
    """What the live view shows but the log, as plain data; steps and evaluations as in StepRow and Evaluation."""
    return {
        "run_folder": str(state.root),
        "run_name": state.name,
        "model": state.settings.model if state.settings else None,
        "job_id": state.job_id or None,
        "state": state.life.life.value,
        "pid": state.life.pid,
        "cause": state.life.cause or None,
        "step": state.step,
        "steps": state.steps,
        "since_last_s": state.since_last_s,
        "step_s": state.step_s,
        "rest_s": state.rest_s,
        "rollouts_under_way": state.under_way,
        "last_steps": [row._asdict() for row in state.rows[-steps:]],
        "evaluations": [one._asdict() for one in state.evaluations],
        "outcomes": [
            {"outcome": one.outcome, "count": one.count, "blames": dict(one.blames), "example": one.example or None}
            for one in state.outcomes
        ],
        "findings": [asdict(one) | {"standing": True} for one in state.standing]
        + [asdict(one) | {"standing": False} for one in state.past],
        "dropped_tasks": list(state.dropped),
        "used": {"whole": state.used.whole, "a_step": state.used.a_step, "a_rollout": state.used.a_rollout},
        "problems": list(state.problems),
    }
