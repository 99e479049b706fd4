"""The example tasks: complete, described, of every kind that Harbor has, and fit for training.

`make test` checks a few that need no packages; `make test-slow` checks all, building a layer from Debian's packages.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders.local_sandbox import needs_sandbox

from drydock.rollout.settings import RolloutDeadlines, RolloutSettings
from drydock.rollout.task_check import check_tasks
from drydock.rollout.task_folder import flaws_of, task_folders

ROOT = Path(__file__).resolve().parents[2]
TASKS = task_folders(ROOT / "examples" / "tasks")
SAMPLE = ["dotfiles", "ledger-in-steps", "orders-by-region", "render-config", "shared-folder"]
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


@cache
def configuration(task: Path) -> dict[str, Any]:
    return tomllib.loads((task / "task.toml").read_text())


def installs_packages(task: Path) -> bool:
    return any("apt-get install" in file.read_text() for file in task.rglob("Dockerfile"))


async def fit(task: Path, state_dir: Path, *, runs: int, allow_network: bool) -> None:
    settings = RolloutSettings(
        agent="nop",
        environment_kwargs={"state_dir": str(state_dir), "allow_network": allow_network},
        deadlines=RolloutDeadlines(),
    )
    (result,) = await check_tasks([task], settings, runs=runs, concurrency=2)
    assert result.ok, "\n".join(f"{fault.what}\n  remedy: {fault.remedy}" for fault in result.faults)


@each_task
def test_files_are_complete(task: Path):
    assert flaws_of(task) == []
    config = configuration(task)
    assert config["task"]["name"] == f"drydock/{task.name}"
    assert config["metadata"]["difficulty"] in ("easy", "medium", "hard")
    assert config["environment"]["network_mode"] == "no-network"
    scripts = [*task.rglob("test.sh"), *task.rglob("solve.sh")]
    assert len(scripts) >= 2 * len(config.get("steps", [None]))
    assert all(script.stat().st_mode & 0o111 for script in scripts)


@each_task
def test_the_tests_are_not_in_the_sandbox(task: Path):
    assert not {file.name for file in task.glob("environment/**/*")} & {"test_outputs.py", "expected.txt", "solve.sh"}


def test_there_are_at_least_thirty():
    assert len(TASKS) >= 30


def test_every_kind_is_there():
    configs = [configuration(task) for task in TASKS]
    steps = [step for config in configs for step in config.get("steps", [])]
    assert {config.get("multi_step_reward_strategy") for config in configs} >= {"mean", "final"}
    assert any("min_reward" in step for step in steps)
    assert any(step.get("verifier", {}).get("environment_mode") == "separate" for step in steps)
    assert any(config["verifier"].get("environment_mode") == "separate" for config in configs)
    assert any("user" in config["agent"] for config in configs)
    assert any("artifacts" in config for config in configs)
    for key in ("memory_mb", "storage_mb", "cpus", "healthcheck", "env"):
        assert any(key in config["environment"] for config in configs), key
    verifiers = [file.read_text() for task in TASKS for file in task.glob("tests/*.py")]
    assert sum("reward.json" in text for text in verifiers) >= 3
    assert {config["metadata"]["category"] for config in configs} >= {
        "code edits",
        "data wrangling",
        "git",
        "services",
        "text processing",
    }


def test_the_documentation_lists_each_with_its_difficulty():
    rows = re.findall(
        r"^\| \[([\w-]+)\]\(\.\./examples/tasks/\1\) \| (\w+) \|", (ROOT / "docs/tasks.md").read_text(), re.M
    )
    assert rows == [(task.name, configuration(task)["metadata"]["difficulty"]) for task in TASKS]


@needs_sandbox
@pytest.mark.sandbox
@pytest.mark.parametrize("name", SAMPLE)
async def test_a_sample_is_fit(name: str, tmp_path: Path):
    task = ROOT / "examples" / "tasks" / name
    assert not installs_packages(task)
    await fit(task, tmp_path, runs=1, allow_network=False)


@needs_sandbox
@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.timeout(600)
@each_task
async def test_each_is_fit(task: Path, tmp_path: Path):
    await fit(task, tmp_path, runs=3, allow_network=True)
