"""The `drydock` command. Each command group is a file; heavy imports happen in the command that needs them.

A DrydockError ends the command with its message and no traceback: exit code 2 when the user can mend it, 1 otherwise
(3 when a run's diagnosis stopped it).
"""

import sys
from typing import Annotated

import typer
from rich.console import Console

from drydock.cli import demo, doctor, eval, jobs, monitor, sandbox, serve, service, sft, tasks, train, trajectories
from drydock.errors import DrydockError

app = typer.Typer(
    name="drydock",
    help="Reinforcement-learning post-training of language models inside their own agent harness.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    from importlib.metadata import version

    if wanted:
        typer.echo(f"drydock {version('drydock-rl')}")
        raise typer.Exit


@app.callback()
def _drydock(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


app.command("train")(train.train)
app.command("sft")(sft.sft)
app.command("eval")(eval.evaluate)
app.command("monitor")(monitor.monitor)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("reap")(sandbox.reap)
app.add_typer(demo.app, name="demo")
app.add_typer(jobs.app, name="jobs")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(service.app, name="service")
app.add_typer(tasks.app, name="tasks")
app.add_typer(trajectories.app, name="trajectories")


def main() -> None:
    """Entry point of the `drydock` script."""
    try:
        app()
    except DrydockError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"error ({error.blame}): {error}", markup=False)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
