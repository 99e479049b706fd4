"""What `drydock train` and `drydock sft` are told: a configuration file, overrides, and the environment.

The one place where these commands read the environment: CKPT_DIR (the run's folder), those of the sandbox (see
`harbor_variables`), those of the agent (see `agent_variables`) and DRYDOCK_SERVICE_TOKEN (the service's token, taken
out so that nothing that the run starts inherits it).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from drydock.training.config import RunConfig
    from drydock.training.run_service import Secrets
    from drydock.training.sft.config import SftConfig

ConfigArgument = Annotated[str, typer.Argument(help="TOML file of the run, or its first key=value.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value, as often as needed.")]


def read_run[Config: (RunConfig, SftConfig)](
    model: type[Config], config: str, overrides: Sequence[str] | None
) -> "tuple[Config, Secrets]":
    """The run's configuration and its secrets. Raises ConfigError."""
    from pydantic import SecretStr

    from drydock.cli.agent_variables import read_agent_variables
    from drydock.cli.harbor_variables import read_sandbox_variables
    from drydock.training.config_file import load_config
    from drydock.training.run_service import Secrets

    file, words = (None, [config]) if "=" in config else (Path(config), [])
    run = load_config(model, file, [*words, *(overrides or [])])
    if run.trainer.ckpt_path is None and os.environ.get("CKPT_DIR"):
        run.trainer.ckpt_path = Path(os.environ["CKPT_DIR"])
    sandbox = getattr(run, "sandbox", None)
    if sandbox is not None:
        read_sandbox_variables(sandbox, os.environ)
    agent = getattr(run, "agent", None)
    if agent is not None:
        read_agent_variables(agent, os.environ)
    token = os.environ.pop("DRYDOCK_SERVICE_TOKEN", None)
    return run, Secrets(service_token=SecretStr(token) if token else None)
