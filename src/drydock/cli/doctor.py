"""`drydock doctor`: what works on this machine, what works with less than it could, what does not, and the remedy.

Given a run's configuration it checks that run: the same command answers "can this machine train?" and "can this run
work?", with one form of answer for both. What costs no time is also checked at the start of every `drydock train`.

Exit codes: 0 when nothing fails (warnings do not count), 1 when something does, 2 when the words or the configuration
cannot be read, 128 + signal number when it was stopped.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from drydock.finding import Level

if TYPE_CHECKING:
    from drydock.training.preflight import Found
    from drydock.training.preflight.run_checks import RunChecks

MACHINE_AREAS = ("sandbox", "machine", "runs", "service")
RUN_AREAS = ("settings", "tasks", "model", "agent", *MACHINE_AREAS, "first-task", "live-job")
"""What can be checked, of a machine and of a run, by the names that can be given to choose."""

_COLOURS = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def doctor(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AREA]... [RUN.toml] [section.key=value]...",
            help=f"What to check, of a run if one is named: {', '.join(RUN_AREAS)}. Default: everything.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
    deep: Annotated[
        bool | None,
        typer.Option(
            "--deep/--no-deep",
            help="Check a run with a small job on its service as well (live-job). Default: where that is cheap, a "
            "small model on this machine's processors.",
        ),
    ] = None,
) -> None:
    """Check this machine, or a whole run before it is started. Exit code 1 when something fails."""
    areas = [word for word in words or () if not _is_of_a_run(word)]
    run_words = [word for word in words or () if _is_of_a_run(word)]
    known = RUN_AREAS if run_words else MACHINE_AREAS
    unknown = [area for area in areas if area not in known]
    if unknown:
        raise typer.BadParameter(_unknown(unknown[0], known))
    run = _run_checks(run_words) if run_words else None
    from drydock.cli.doctor_checks import checks_of_machine, checks_of_run
    from drydock.report.progress import RunProgress
    from drydock.training.preflight import find_all
    from drydock.training.stopping import run_until_stopped

    found: list[Found] = []
    with RunProgress(Console(stderr=True, highlight=False, soft_wrap=True, quiet=as_json)) as progress:
        wanted_deep = True if "live-job" in areas and deep is None else deep
        everything = checks_of_run(run, wanted_deep, progress) if run is not None else checks_of_machine()
        checks = [check for check in everything if not areas or check.area in areas]

        async def check() -> None:
            found.extend(await find_all(checks, progress.waiting))

        status = run_until_stopped(check, lambda name: progress.note(f"{name}: stopping"), lambda name: None)
    if status:
        raise typer.Exit(status)
    _show(found, as_json=as_json)
    if not all(item.ok for _, item in found):
        raise typer.Exit(1)


def _is_of_a_run(word: str) -> bool:
    return "=" in word or word.endswith(".toml") or "/" in word


def _unknown(area: str, known: Sequence[str]) -> str:
    if area in RUN_AREAS:
        return f"{area} is checked of a run: name its TOML file as well"
    return f"{area} is no area; there are {', '.join(known)}"


def _run_checks(words: Sequence[str]) -> "RunChecks":
    """The checks of the run that the words describe. Raises ConfigError."""
    from drydock.cli.run_arguments import read_run
    from drydock.errors import SandboxUnavailable
    from drydock.sandbox.locations import driver_state_dir
    from drydock.sandbox.rootless import enter_user_namespace
    from drydock.training.config import RunConfig

    run, secrets = read_run(RunConfig, words[0], words[1:])
    if run.sandbox.environment == "local":
        with contextlib.suppress(SandboxUnavailable):  # the area `sandbox` says so, and what to do
            enter_user_namespace()
    from drydock.training.preflight.run_checks import RunChecks
    from drydock.training.run_folder import RunFolder

    root = run.trainer.ckpt_path or Path("runs") / run.trainer.run_name
    folder = RunFolder(root.resolve(), run.trainer.run_name)
    return RunChecks(run, secrets, folder, run.sandbox.state_dir or driver_state_dir())


def _show(found: "Sequence[Found]", *, as_json: bool) -> None:
    if as_json:
        rows = [{"area": area, **asdict(item), "remedy": item.remedy_needed} for area, item in found]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("area", "check", "result", "found", "remedy")
    for area, item in found:
        result = f"[{_COLOURS[item.level]}]{item.level}[/]"
        table.add_row(area, item.name, result, escape(item.detail), escape(item.remedy_needed))
    Console().print(table)
