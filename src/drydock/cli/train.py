"""`drydock train`: one run from a configuration file and overrides.

Besides what `run_arguments` reads of the environment, XDG_STATE_HOME says where the driver keeps its state.
"""

import typer

from drydock.cli.run_arguments import ConfigArgument, Overrides, read_run
from drydock.sandbox.locations import driver_state_dir


def train(config: ConfigArgument, overrides: Overrides = None) -> None:
    """Train a model inside its agent harness on Harbor tasks."""
    from drydock.sandbox.rootless import enter_user_namespace
    from drydock.training.config import RunConfig

    run, secrets = read_run(RunConfig, config, overrides)
    if run.sandbox.environment == "local":
        enter_user_namespace()
    from drydock.report.progress import RunProgress
    from drydock.training.launch import launch

    raise typer.Exit(launch(run, secrets, run.sandbox.state_dir or driver_state_dir(), RunProgress()))
