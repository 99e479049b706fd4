"""Environments that are not Drydock's own: found by name or class, checked before any rollout."""

import re

import pytest
from builders.policy import SOLVE_HELLO
from builders.tasks import write_task
from harbor.models.environment_type import EnvironmentType

from drydock.errors import ConfigError, SandboxUnavailable, UserError
from drydock.rollout import Outcome, run_rollout
from drydock.rollout.environment_ready import check_environment

BASH = "builders.bash_environment:BashEnvironment"


@pytest.mark.parametrize("name", [kind.value for kind in EnvironmentType])
def test_every_environment_of_harbors_is_known_and_says_itself_what_is_missing(name: str, monkeypatch) -> None:
    for variable in ("PATH", "HOME", "DAYTONA_API_KEY", "E2B_API_KEY", "MODAL_TOKEN_ID"):
        monkeypatch.setenv(variable, "")
    refusal = ""
    try:
        check_environment(name, {})
    except UserError as error:
        refusal = str(error)
    assert refusal == "" or re.match(
        rf"the sandbox {name} cannot be (loaded|used)|the sandbox {name} cannot work", refusal
    )


def test_docker_without_docker_is_refused_with_the_remedy(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="the sandbox docker cannot work on this machine: Docker is not inst"):
        check_environment("docker", {})


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("dokcer", {}, "unknown sandbox 'dokcer'; give module:Class or one of: local, host, docker"),
        ("no.such.module:Sandbox", {}, "no.such.module:Sandbox cannot be imported"),
        ("drydock.rollout.settings:RolloutSettings", {}, "cannot be imported"),
    ],
)
def test_what_is_no_environment_is_refused(name, kwargs, message) -> None:
    with pytest.raises(ConfigError, match=message):
        check_environment(name, kwargs)


async def test_a_rollout_runs_in_any_environment_class(tmp_path, serve, settings, spec_for):
    check_environment(BASH, {})
    settings = settings.model_copy(update={"environment": BASH, "environment_kwargs": {}})
    task = write_task(tmp_path / "hello", test="echo 1 > ./logs/verifier/reward.txt")
    async with serve(SOLVE_HELLO) as proxy:
        trajectory = await run_rollout(spec_for(task), settings, proxy)
    # the bare class runs bash in a folder of this machine, where Harbor's absolute paths do not lead
    assert trajectory.outcome is Outcome.VERIFIER_ERROR
    assert (trajectory.turns, trajectory.submitted) == (4, True)
