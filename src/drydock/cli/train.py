"""`drydock train`: one run from a configuration file and overrides.

Besides what `run_arguments` reads of the environment, XDG_STATE_HOME says where the driver keeps its state.
"""

from typing import Annotated

import typer

from drydock.cli.run_arguments import ConfigArgument, Overrides, read_run
from drydock.sandbox.locations import driver_state_dir

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Write the resolved configuration, say what the run would do, create nothing else."),
]

Measure = Annotated[
    bool,
    typer.Option(
        "--measure", help="With --dry-run: make and train one rollout in a job of its own, to tell time and cost."
    ),
]


def train(
    config: ConfigArgument, overrides: Overrides = None, dry_run: DryRun = False, measure: Measure = False
) -> None:
    """Train a model inside its agent harness on Harbor tasks."""
    if measure and not dry_run:
        raise typer.BadParameter("it belongs to --dry-run", param_hint="--measure")
    from drydock.training.config import RunConfig

    run, secrets = read_run(RunConfig, config, overrides)
    state_dir = run.sandbox.state_dir or driver_state_dir()
    if run.sandbox.environment == "local" and (measure or not dry_run):
        from drydock.sandbox.rootless import enter_user_namespace

        enter_user_namespace()
    if dry_run:
        from drydock.training.dry_run import launch_dry_run

        raise typer.Exit(launch_dry_run(run, secrets, state_dir, measure=measure))
    from drydock.report.progress import RunProgress
    from drydock.training.launch import launch

    raise typer.Exit(launch(run, secrets, state_dir, RunProgress()))
