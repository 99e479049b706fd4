"""What `drydock train`, `sft` and `eval` are told: a configuration file, overrides, and the environment.

The one place where these commands read the environment: CKPT_DIR (the run's folder), those of the published recipes
(see `recipe_variables`), of the sandbox (`harbor_variables`) and of the agent (`agent_variables`). The secrets
DRYDOCK_SERVICE_TOKEN (our service's token) and ARCTIC_CORTEX_PAT (the hosted one's) are taken out, so that nothing that
the run starts inherits them.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pydantic import SecretStr

    from drydock.training.config import RunConfig
    from drydock.training.eval_config import EvalConfig
    from drydock.training.run_service import Secrets
    from drydock.training.sft.config import SftConfig

ConfigArgument = Annotated[str, typer.Argument(help="TOML file of the run, or its first key=value.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value, as often as needed.")]


def read_run[Config: (RunConfig, SftConfig, EvalConfig)](
    model: type[Config], config: str, overrides: Sequence[str] | None
) -> "tuple[Config, Secrets]":
    """The run's configuration and its secrets. Raises ConfigError."""
    from drydock.cli.agent_variables import read_agent_variables
    from drydock.cli.harbor_variables import read_sandbox_variables
    from drydock.cli.recipe_variables import recipe_settings, variables_named
    from drydock.errors import ConfigError
    from drydock.training.config_file import load_config
    from drydock.training.run_service import Secrets

    secrets = Secrets(service_token=_secret("DRYDOCK_SERVICE_TOKEN"), pat=_secret("ARCTIC_CORTEX_PAT"))
    file, words = (None, [config]) if "=" in config else (Path(config), [])
    on_tasks = "sandbox" in model.model_fields
    try:
        run = load_config(
            model,
            file,
            [*words, *(overrides or [])],
            below=lambda given: recipe_settings(os.environ, given, on_tasks=on_tasks),
        )
    except ConfigError as error:
        if not (named := variables_named(str(error), os.environ, on_tasks=on_tasks)):
            raise
        raise ConfigError(f"{error} (environment variables: {', '.join(named)})") from None
    if run.trainer.ckpt_path is None and os.environ.get("CKPT_DIR"):
        run.trainer.ckpt_path = Path(os.environ["CKPT_DIR"])
    sandbox = getattr(run, "sandbox", None)
    if sandbox is not None:
        read_sandbox_variables(sandbox, os.environ)
    agent = getattr(run, "agent", None)
    if agent is not None:
        read_agent_variables(agent, os.environ)
    return run, secrets


def _secret(variable: str) -> "SecretStr | None":
    from pydantic import SecretStr

    text = os.environ.pop(variable, "").strip()
    return SecretStr(text) if text else None
