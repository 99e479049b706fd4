"""The sandbox as the published recipes name it: HARBOR_ENV and HARBOR_ENV_KWARGS of the environment.

A configuration that says something of its own about the sandbox wins, key by key.
"""

import json
from collections.abc import Mapping
from typing import Any

from drydock.errors import ConfigError
from drydock.training.rollout_config import SandboxConfig

ENVIRONMENT = "HARBOR_ENV"
KWARGS = "HARBOR_ENV_KWARGS"


def read_sandbox_variables(sandbox: SandboxConfig, variables: Mapping[str, str]) -> None:
    """Complete `sandbox` from the environment variables. Raises ConfigError for kwargs that cannot be read."""
    environment = variables.get(ENVIRONMENT, "").strip()
    if environment and "environment" not in sandbox.model_fields_set:
        sandbox.environment = environment
    sandbox.kwargs = {**read_kwargs(variables.get(KWARGS, "")), **sandbox.kwargs}


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
