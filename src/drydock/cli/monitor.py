"""`drydock monitor`: what a run is doing, live in the terminal or printed once. It reads the run's folder only.

Exit codes: 0, or 2 when there is no run to look at or no terminal to show it in.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def monitor(
    run_folder: Annotated[
        Path | None, typer.Argument(help="The run's folder (CKPT_DIR). Default: the newest run below runs/.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit; needs no terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it once as JSON and exit.")] = False,
) -> None:
    """Watch a run: its state, curve, steps, diagnosis, rollouts, cost and log. Running, stopped or finished."""
    from drydock.errors import UserError
    from drydock.report.monitor.find_run import find_run
    from drydock.report.monitor.run_watch import RunWatch
    from drydock.training.run_folder import RunFolder

    watch = RunWatch(find_run(run_folder, Path("runs")), RunFolder)
    if as_json:
        from drydock.report.monitor.printed import as_json as plain

        typer.echo(json.dumps(plain(watch.poll()), indent=1))
    elif once:
        from rich.console import Console

        from drydock.cli.tables import WIDTH_OF_A_PIPE
        from drydock.report.monitor.printed import print_state

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = WIDTH_OF_A_PIPE
        print_state(watch.poll(), console)
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("there is no terminal to show the run in: print it with --once, or as JSON with --json")
    else:
        from drydock.report.monitor.view import MonitorApp

        MonitorApp(watch).run()
