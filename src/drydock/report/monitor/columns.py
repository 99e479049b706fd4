"""The table of steps: a line for each step, with the evaluation after it."""

from collections.abc import Callable
from dataclasses import dataclass

from drydock.report.monitor.run_state import RunState
from drydock.report.monitor.step_rows import Evaluation, StepRow
from drydock.report.monitor.words import figure


@dataclass(frozen=True, slots=True)
class Column:
    """title: its unit is in docs/monitor.md. cell: of a step's row."""

    title: str
    cell: Callable[[StepRow], str]


_SCORE = "held-out"

REINFORCED = (
    Column("reward", lambda row: figure(row.reward, ".3f")),
    Column(_SCORE, lambda row: ""),
    Column("graded", lambda row: figure(row.graded, ".0f")),
    Column("masked", lambda row: figure(row.masked, ".0f")),
    Column("signal", lambda row: figure(row.signal, ".0%")),
    Column("found", lambda row: str(row.findings or "")),
    Column("s", lambda row: figure(row.seconds, ".1f")),
    Column("mismatch", lambda row: figure(row.mismatch, ".1e")),
    Column("stale", lambda row: figure(row.staleness, ".2f")),
    Column("entropy", lambda row: figure(row.entropy, ".3f")),
    Column("grad norm", lambda row: figure(row.grad_norm, ".3g")),
    Column("tokens", lambda row: figure(row.tokens, ".0f")),
    Column("turns", lambda row: figure(row.turns, ".1f")),
)
"""The most important first: where there is no room for all, those at the end are out of sight."""

SUPERVISED = (
    Column("loss", lambda row: figure(row.loss, ".4f")),
    Column(_SCORE, lambda row: ""),
    Column("trained", lambda row: figure(row.trained_tokens, ",.0f")),
    Column("rate", lambda row: figure(row.learning_rate, ".2e")),
    Column("grad norm", lambda row: figure(row.grad_norm, ".3g")),
    Column("s", lambda row: figure(row.seconds, ".1f")),
)


def titles(state: RunState) -> tuple[str, ...]:
    """Of the columns, the number of the step first."""
    return ("step", *(column.title for column in _columns(state)))


def table_rows(state: RunState, last: int) -> dict[int, tuple[str, ...]]:
    """Cells of the last so many steps by their number, rising; an evaluation without a step has a line of its own."""
    rows = {row.step: row for row in state.rows[-last:]}
    first = min(rows, default=0) if len(state.rows) > last else 0
    scores = {one.step: one for one in state.evaluations if one.step >= first}
    return {step: _cells(state, step, rows.get(step), scores.get(step)) for step in sorted(rows.keys() | scores.keys())}


def _cells(state: RunState, step: int, row: StepRow | None, evaluation: Evaluation | None) -> tuple[str, ...]:
    score = figure(evaluation.score, ".4f" if state.supervised else ".3f") if evaluation else ""
    cells = (score if column.title == _SCORE else column.cell(row) if row else "" for column in _columns(state))
    return (str(step), *cells)


def _columns(state: RunState) -> tuple[Column, ...]:
    return SUPERVISED if state.supervised else REINFORCED
