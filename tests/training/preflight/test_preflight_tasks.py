"""Tasks that cannot be read are named by file and line; the first one is graded as training would."""

from pathlib import Path

import pytest
from builders.tasks import write_task

from drydock.finding import Level
from drydock.rollout.settings import RolloutSettings
from drydock.training.preflight.first_task import check_first_task
from drydock.training.preflight.tasks import check_task_environments, check_task_files
from drydock.training.rollout_config import SandboxConfig
from drydock.training.task_set import Task

EARNS_HALF = "echo 0.5 > /logs/verifier/reward.txt"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutSettings:
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    kwargs = {"state_dir": str(tmp_path / "sandboxes")}
    return RolloutSettings(environment="host", environment_kwargs=kwargs, work_dir=tmp_path / "trials")


def test_all_flaws_of_all_tasks_are_named(tmp_path: Path) -> None:
    tasks = [Task(name, write_task(tmp_path / name)) for name in ("one", "two", "three")]
    assert check_task_files(tasks)[0].level is Level.PASS
    (tmp_path / "two" / "tests" / "test.sh").write_text("#!/bin/bash\nif true\n")
    (tmp_path / "three" / "instruction.md").write_text("")
    (finding,) = check_task_files(tasks)
    assert finding.level is Level.FAIL
    assert str(tmp_path / "two" / "tests" / "test.sh") in finding.detail
    assert f"{tmp_path / 'three' / 'instruction.md'}:1: empty" in finding.detail


def test_environments_that_other_sandboxes_make_are_left_to_them(tmp_path: Path) -> None:
    folders = [write_task(tmp_path / "one", dockerfile="FROM alpine:3\n")]
    assert check_task_environments(SandboxConfig(environment="docker"), folders)[0].level is Level.PASS


async def test_doing_nothing_earns_nothing(tmp_path: Path, settings: RolloutSettings) -> None:
    (finding,) = await check_first_task(write_task(tmp_path / "task"), settings)
    assert finding.level is Level.PASS
    assert "doing nothing earns 0" in finding.detail


async def test_a_reward_for_nothing_warns_unless_the_task_says_so(tmp_path: Path, settings: RolloutSettings) -> None:
    (finding,) = await check_first_task(write_task(tmp_path / "task", test=EARNS_HALF), settings)
    assert finding.level is Level.WARN
    assert "earns 0.5, more than its baseline of 0" in finding.detail
    stated = write_task(tmp_path / "stated", test=EARNS_HALF, toml="[metadata]\nbaseline_reward = 0.5\n")
    assert (await check_first_task(stated, settings))[0].level is Level.PASS
