"""`drydock sft`: supervised fine-tuning on conversations.

The one place where the environment is read: CKPT_DIR (the run's folder), DRYDOCK_SERVICE_TOKEN (the service's token,
taken out so that nothing that the run starts inherits it).
"""

import os
from pathlib import Path
from typing import Annotated

import typer


def sft(
    config: Annotated[str, typer.Argument(help="TOML file of the run, or its first key=value.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value, as often as needed.")] = None,
) -> None:
    """Fine-tune a model on conversations, loss on the assistant's tokens."""
    from pydantic import SecretStr

    from drydock.report.progress import RunProgress
    from drydock.training.config_file import load_config
    from drydock.training.run_service import Secrets
    from drydock.training.sft.config import SftConfig
    from drydock.training.sft.launch import launch_sft

    arguments = [*([config] if "=" in config else []), *(overrides or [])]
    run = load_config(SftConfig, None if "=" in config else Path(config), arguments)
    if run.trainer.ckpt_path is None and os.environ.get("CKPT_DIR"):
        run.trainer.ckpt_path = Path(os.environ["CKPT_DIR"])
    token = os.environ.pop("DRYDOCK_SERVICE_TOKEN", None)
    raise typer.Exit(launch_sft(run, Secrets(SecretStr(token) if token else None), RunProgress()))
