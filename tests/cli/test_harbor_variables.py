from pathlib import Path

import pytest

from drydock.cli.harbor_variables import read_kwargs, read_sandbox_variables
from drydock.errors import ConfigError
from drydock.training.rollout_config import SandboxConfig


@pytest.mark.parametrize(
    ("text", "kwargs"),
    [
        ("", {}),
        ('{"namespace": "x", "ports": [1]}', {"namespace": "x", "ports": [1]}),
        ("namespace=x\n auto_stop = 5 \nflag=true", {"namespace": "x", "auto_stop": 5, "flag": True}),
        ("url=https://a/?b=c", {"url": "https://a/?b=c"}),
    ],
)
def test_kwargs_are_a_json_object_or_lines(text: str, kwargs: dict) -> None:
    assert read_kwargs(text) == kwargs


@pytest.mark.parametrize("text", ["{", "word", "=x"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="HARBOR_ENV_KWARGS"):
        read_kwargs(text)


def test_the_configuration_wins_over_the_environment() -> None:
    variables = {"HARBOR_ENV": "docker", "HARBOR_ENV_KWARGS": "a=1\nb=2"}
    given = SandboxConfig()
    read_sandbox_variables(given, variables)
    assert (given.environment, given.kwargs) == ("docker", {"a": 1, "b": 2})
    own = SandboxConfig(environment="host", kwargs={"b": 3})
    read_sandbox_variables(own, variables)
    assert (own.environment, own.kwargs) == ("host", {"a": 1, "b": 3})


def test_the_workspace_is_where_the_sandboxes_files_are() -> None:
    given = SandboxConfig()
    read_sandbox_variables(given, {"OPENHANDS_WORKSPACE": " work "})
    assert (given.state_dir, given.kwargs) == (Path.cwd() / "work", {"storage": "disk"})
    host = SandboxConfig(environment="host")
    read_sandbox_variables(host, {"OPENHANDS_WORKSPACE": "/disk"})
    assert (host.state_dir, host.kwargs) == (Path("/disk"), {})
    own = SandboxConfig(state_dir=Path("/own"))
    in_memory = SandboxConfig(kwargs={"storage": "memory"})
    for config in (own, in_memory):
        read_sandbox_variables(config, {"OPENHANDS_WORKSPACE": "/disk"})
    assert (own.state_dir, own.kwargs) == (Path("/own"), {})
    assert (in_memory.state_dir, in_memory.kwargs) == (Path("/disk"), {"storage": "memory"})
