"""`drydock train`: one run from a configuration file and overrides.

The one place where the environment is read: CKPT_DIR (the run's folder), DRYDOCK_SERVICE_TOKEN (the service's token),
XDG_STATE_HOME. The token is taken out of it, so that nothing that the run starts inherits it.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from drydock.sandbox.locations import driver_state_dir


def train(
    config: Annotated[str, typer.Argument(help="TOML file of the run, or its first key=value.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value, as often as needed.")] = None,
) -> None:
    """Train a model inside its agent harness on Harbor tasks."""
    from pydantic import SecretStr

    from drydock.report.progress import RunProgress
    from drydock.training.config_file import load_run_config
    from drydock.training.launch import launch
    from drydock.training.run_service import Secrets

    arguments = [*([config] if "=" in config else []), *(overrides or [])]
    run = load_run_config(None if "=" in config else Path(config), arguments)
    if run.trainer.ckpt_path is None and os.environ.get("CKPT_DIR"):
        run.trainer.ckpt_path = Path(os.environ["CKPT_DIR"])
    token = os.environ.pop("DRYDOCK_SERVICE_TOKEN", None)
    secrets = Secrets(service_token=SecretStr(token) if token else None)
    code = launch(run, secrets, run.sandbox.state_dir or driver_state_dir(), RunProgress())
    raise typer.Exit(code)
