"""The parts of the view as lines of text: the same in the live view and in the printed page."""

from collections.abc import Iterator

from rich.text import Text

from drydock.amount import amount, duration
from drydock.report.monitor.life import Life
from drydock.report.monitor.run_state import RunState
from drydock.report.monitor.step_rows import StepRow
from drydock.report.monitor.text_plot import LINE, MARK, MARK_SIGN, plot
from drydock.report.monitor.words import figure
from drydock.report.printable import printable

STYLES = {
    Life.RUNNING: "bold green",
    Life.FINISHED: "bold green",
    Life.STOPPED: "bold yellow",
    Life.FAILED: "bold red",
    Life.KILLED: "bold red",
    Life.OVER: "bold",
}
LEVELS = {"stop": "bold red", "warn": "yellow"}


def head(state: RunState) -> Iterator[Text]:
    """What the run is doing, how far it is, when it will be done, what it used."""
    first = Text(printable(state.name), style="bold")
    yield first.append("  ").append(printable(str(state.life)), style=STYLES[state.life.life])
    yield Text(", ".join(_progress(state)))
    if state.settings:
        model = f"model {state.settings.model}"
        yield Text(printable(f"job {state.job_id}, {model}" if state.job_id else model), style="dim")
    if used := str(state.used):
        yield Text(f"used {used}")
    for problem in state.problems:
        yield Text(printable(problem), style="yellow")


def _progress(state: RunState) -> Iterator[str]:
    if state.rows or state.steps:
        yield f"step {state.step}" + (f" of {state.steps}" if state.steps else "")
    else:
        yield "no step yet" if state.is_running else "no step"
    if state.is_running and state.since_last_s is not None:
        yield f"last {'evaluation' if state.after_evaluation else 'step'} {duration(state.since_last_s)} ago"
    if state.step_s is not None:
        yield f"{duration(state.step_s)} a step"
    if state.rest_s is not None:
        yield f"about {duration(state.rest_s)} to go"
    if state.under_way:
        yield f"{amount(state.under_way, 'rollout')} under way"


def curve(state: RunState, width: int, height: int) -> list[Text]:
    """The curve of rewards or losses, a title above it; [] before there is anything."""
    of_step = [(row.step, value) for row in state.rows if (value := _score(state, row)) is not None]
    held_out = [(one.step, one.score) for one in state.evaluations if one.score is not None]
    drawn = plot(of_step, held_out, width, height - 1)
    if not drawn:
        return []
    title = Text(f"{'loss' if state.supervised else 'mean reward'} a step", style=LINE)
    if held_out:
        title.append(f"  {MARK_SIGN} held-out", style=MARK)
        if len(held_out) > 1:
            title.append(f" {held_out[0][1]:.3f} to {held_out[-1][1]:.3f}", style=MARK)
        else:
            title.append(f" {held_out[0][1]:.3f}", style=MARK)
    return [title, *drawn]


def _score(state: RunState, row: StepRow) -> float | None:
    return row.loss if state.supervised else row.reward


def outcomes(state: RunState) -> Iterator[Text]:
    """How the rollouts of the last step ended; whose fault, and what was said."""
    for one in state.outcomes:
        line = Text(f"{one.count:>4} {one.outcome}")
        if one.blames:
            line.append(f"  blame: {', '.join(f'{who} {count}' for who, count in one.blames)}", style="yellow")
        yield line
        if one.example:
            yield Text(f"     {printable(' '.join(one.example.split()))}", style="dim")


def findings(state: RunState, *, past: bool = True) -> Iterator[Text]:
    """What the diagnosis found, with the remedy; `past`: also what is seen no more."""
    for one in state.standing:
        line = Text(f"{one.level} {one.check}", style=LEVELS.get(one.level, "yellow"))
        line.append(f" (blame: {one.blame}, {one.where}): ", style="not bold")
        yield line.append(printable(one.cause), style="default not bold")
        yield Text(f"  do: {printable(one.remedy)}")
        if one.evidence:
            yield Text(f"  see {printable(', '.join(one.evidence))}", style="dim")
    for one in state.past if past else ():
        yield Text(f"seen no more: {one.check} ({one.where}): {printable(one.cause)}", style="dim")


def dropped(state: RunState) -> Iterator[Text]:
    """Tasks that the run goes on without."""
    for task in state.dropped:
        cause = " ".join(str(task.get("cause", "")).split())
        yield Text(printable(f"dropped {task.get('task')} in step {task['step']}: {cause}"), style="yellow")


def evaluation_line(state: RunState) -> Iterator[Text]:
    """The last evaluation in figures."""
    for one in state.evaluations[-1:]:
        interval = "" if one.low is None or one.high is None else f" ({one.low:.3f} to {one.high:.3f})"
        yield Text(f"last evaluation, after step {one.step}: {figure(one.score, '.3f') or 'nothing graded'}{interval}")
