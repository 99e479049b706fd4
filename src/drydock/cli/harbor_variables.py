"""The sandbox as the published recipes name it: HARBOR_ENV, HARBOR_ENV_KWARGS and OPENHANDS_WORKSPACE.

OPENHANDS_WORKSPACE is the folder on the driver's disk below which each rollout that is running has its files. So it is
`sandbox.state_dir`, and the local sandbox keeps what is written in it there instead of in memory.

A configuration that says something of its own about the sandbox wins, key by key.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drydock.errors import ConfigError
from drydock.training.rollout_config import SandboxConfig

ENVIRONMENT = "HARBOR_ENV"
KWARGS = "HARBOR_ENV_KWARGS"
WORKSPACE = "OPENHANDS_WORKSPACE"


def read_sandbox_variables(sandbox: SandboxConfig, variables: Mapping[str, str]) -> None:
    """Complete `sandbox` from the environment variables. Raises ConfigError for kwargs that cannot be read."""
    environment = variables.get(ENVIRONMENT, "").strip()
    if environment and "environment" not in sandbox.model_fields_set:
        sandbox.environment = environment
    sandbox.kwargs = {**read_kwargs(variables.get(KWARGS, "")), **sandbox.kwargs}
    workspace = variables.get(WORKSPACE, "").strip()
    if workspace and sandbox.state_dir is None:
        sandbox.state_dir = Path(workspace).absolute()
        if sandbox.environment == "local":
            sandbox.kwargs.setdefault("storage", "disk")


def read_kwargs(text: str) -> dict[str, Any]:
    """`text` as a JSON object, or as lines of `key=value` whose values are JSON or else plain text."""
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{KWARGS} is no JSON object: {error}") from None
    kwargs = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{KWARGS}: {line!r} is neither a JSON object nor key=value")
        kwargs[key.strip()] = _value(value.strip())
    return kwargs


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
