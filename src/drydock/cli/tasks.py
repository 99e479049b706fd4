"""`drydock tasks`: whether tasks are fit for training."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.amount import amount
from drydock.sandbox.locations import driver_state_dir

if TYPE_CHECKING:
    from drydock.rollout.task_check import TaskCheck

app = typer.Typer(help="Harbor tasks: check whether they are fit for training.", no_args_is_help=True)

Sources = Annotated[
    list[str], typer.Argument(metavar="DIR… [section.key=value…]", help="Task directories, or directories of them.")
]
Runs = Annotated[int, typer.Option(min=1, help="Trials of the solution, and of doing nothing, a task.")]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Sandboxes at the same time. Default: the number of processors.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of a table.")]


@app.command()
def check(sources: Sources, runs: Runs = 3, concurrency: Concurrency = None, as_json: Json = False) -> None:
    """Run each task's solution and an agent that does nothing, several times; exit code 1 when a task is not fit.

    The sections `sandbox` and `deadlines` can be set as for `drydock train`: sandbox.kwargs.allow_network=true, and the
    sandbox is that of HARBOR_ENV, HARBOR_ENV_KWARGS and OPENHANDS_WORKSPACE where they are set.
    """
    from drydock.cli.harbor_variables import read_sandbox_variables
    from drydock.errors import ConfigError
    from drydock.sandbox.rootless import enter_user_namespace
    from drydock.training.config_file import load_config
    from drydock.training.stopping import run_until_stopped
    from drydock.training.task_check_run import TaskCheckConfig, find_folders, run_check

    config = load_config(TaskCheckConfig, None, [word for word in sources if "=" in word])
    read_sandbox_variables(config.sandbox, os.environ)
    folders = find_folders([Path(word) for word in sources if "=" not in word])
    if not folders:
        raise ConfigError("no task directory is given: drydock tasks check DIR…")
    if config.sandbox.environment == "local":
        enter_user_namespace()
    results: list[TaskCheck] = []
    progress = _Progress(len(folders))

    async def run() -> None:
        results.extend(
            await run_check(
                folders,
                config,
                config.sandbox.state_dir or driver_state_dir(),
                runs=runs,
                concurrency=concurrency or os.cpu_count() or 1,
                note=progress.note,
                on_done=progress.done,
            )
        )

    status = run_until_stopped(run, lambda name: progress.note(f"{name}: stopping"), lambda name: None)
    if status:
        raise typer.Exit(status)
    if as_json:
        fit = all(result.ok for result in results)
        typer.echo(json.dumps({"ok": fit, "tasks": [_row(result) for result in results]}, indent=2))
    else:
        _show(results)
    raise typer.Exit(0 if all(result.ok for result in results) else 1)


class _Progress:
    """A line on stderr for each task that is done, where somebody looks at it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def note(self, text: str) -> None:
        typer.echo(text, err=True)

    def done(self, result: "TaskCheck") -> None:
        self._done += 1
        self.note(f"{self._done}/{self._total} {result.task}: {'ok' if result.ok else 'not fit'}")


def _row(result: "TaskCheck") -> dict[str, object]:
    return {"ok": result.ok, **result.model_dump(mode="json")}


def _show(results: "list[TaskCheck]") -> None:
    from drydock.cli.tables import show_table

    show_table(
        ["task", "fit", "solution", "nothing", "build s", "sandbox s", "solve s", "verifier s"],
        [
            [
                result.task,
                "yes" if result.ok else "no",
                _rewards(result.solution),
                _rewards(result.nothing),
                *(_seconds(result, name) for name in ("build_s", "sandbox_s", "solve_s", "verifier_s")),
            ]
            for result in results
        ],
    )
    for result in results:
        for fault in result.faults:
            typer.echo(f"{result.task} ({fault.blame}): {fault.what}\n  remedy: {fault.remedy}")
    unfit = sum(not result.ok for result in results)
    verb = "is" if len(results) == 1 else "are"
    typer.echo(f"{len(results) - unfit} of {amount(len(results), 'task')} {verb} fit")


def _rewards(rewards: list[float]) -> str:
    """One number where all runs agree."""
    return " ".join(f"{reward:g}" for reward in ([*dict.fromkeys(rewards)] if len({*rewards}) == 1 else rewards))


def _seconds(result: "TaskCheck", name: str) -> str:
    return f"{result.timings[name]:.2f}" if name in result.timings else ""
