"""What the terminal shows when a run has ended: the means, the token audit, and where everything is."""

from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from drydock.proxy.audit import TokenAudit
from drydock.report.curve import RewardCurve
from drydock.report.metrics import MetricsFile
from drydock.report.used import used_by


class RunPaths(Protocol):
    """Where a run keeps what the summary names."""

    @property
    def root(self) -> Path: ...
    @property
    def metrics(self) -> Path: ...
    @property
    def log(self) -> Path: ...
    @property
    def graph_svg(self) -> Path: ...
    def saved_checkpoints(self) -> list[Path]: ...


EDGE = 5


def print_summary(paths: RunPaths, tokens: TokenAudit, console: Console) -> None:
    """Print the table of means, the audit's line and the paths."""
    records = MetricsFile(paths.metrics).read()
    curve = RewardCurve.from_metrics(records)
    table = Table(title="mean reward", title_justify="left")
    table.add_column("steps")
    table.add_column("mean reward", justify="right")
    for first, last, mean in curve.windows():
        table.add_row(f"{first} to {last}", f"{mean:.3f}")
    if len(curve.rewards) > EDGE:
        table.add_section()
        table.add_row(f"first {EDGE}", f"{curve.mean_of_first(EDGE):.3f}")
        table.add_row(f"last {EDGE}", f"{curve.mean_of_last(EDGE):.3f}")
    evaluations = [record for record in records if record.get("eval/all/avg_score") is not None]
    if evaluations:
        table.add_section()
        for record in evaluations:
            table.add_row(
                f"evaluation at step {record['step']}", f"{record['eval/all/avg_score']:.3f}{_interval(record)}"
            )
    console.print(table)
    masked = sum(record.get("rollouts/masked") or 0 for record in records)
    graded = sum(record.get("rollouts/graded") or 0 for record in records)
    console.print(f"rollouts: {graded} graded, {masked} masked{_causes(records)}", markup=False)
    console.print(
        f"tokens: {tokens.trained_tokens} with loss mask 1 (evaluations included), {tokens.faults}", markup=False
    )
    if used := used_by(records):
        console.print(f"used:   {used}", markup=False)
    steps = [record for record in records if "policy/updates" in record]
    if steps and not any(record["policy/updates"] for record in steps):
        console.print(
            "warning: no step changed the model: in every group all rewards were equal; the tasks are too hard or too "
            "easy for it, or the group is too small",
            markup=False,
        )
    saved = paths.saved_checkpoints()
    model = (
        saved[-1] if saved else "not in this folder; trainer.save_final_checkpoint=true saves it at the end of a run"
    )
    for name, path in (
        ("model", model),
        ("curve", f"{paths.graph_svg} (and .png)"),
        ("metrics", paths.metrics),
        ("trajectories", paths.root / "trajectories"),
        ("log", paths.log),
    ):
        console.print(f"{name + ':':<14}{path}", markup=False)


def _interval(record: dict) -> str:
    low, high = record.get("eval/all/ci_low"), record.get("eval/all/ci_high")
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _causes(records: list[dict]) -> str:
    causes: dict[str, int] = {}
    for record in records:
        for key, value in record.items():
            if key.startswith("outcome/") and key != "outcome/graded":
                name = key.removeprefix("outcome/")
                causes[name] = causes.get(name, 0) + value
    return f" ({', '.join(f'{name} {count}' for name, count in sorted(causes.items()))})" if causes else ""
