"""Whole Harbor trials in the sandboxes: real trial, real verifier, the oracle and the agent that does nothing."""

import asyncio
from pathlib import Path

import pytest
from builders.tasks import write_task
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig, VerifierConfig
from harbor.trial.trial import Trial

LOCAL = "drydock.sandbox.local:LocalEnvironment"
HOST = "drydock.sandbox.host:HostEnvironment"
DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY data.txt .\nENV FOO=bar\n"
SOLUTION = 'test "$FOO" = bar && test "$(cat data.txt)" = input && echo hello > answer.txt\n'


def task(tmp_path: Path, **kwargs) -> Path:
    directory = write_task(tmp_path / "task", dockerfile=DOCKERFILE, solution=SOLUTION, **kwargs)
    (directory / "environment" / "data.txt").write_text("input\n")
    return directory


async def run_trial(tmp_path: Path, directory: Path, agent: str, environment: str = LOCAL):
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=directory),
            trials_dir=tmp_path / "trials",
            agent=AgentConfig(name=agent),
            verifier=VerifierConfig(),
            environment=EnvironmentConfig(import_path=environment, kwargs={"state_dir": str(tmp_path / "state")}),
        )
    )
    return await trial.run()


@pytest.mark.sandbox
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_trial_in_the_local_sandbox(tmp_path, agent, reward):
    result = await run_trial(tmp_path, task(tmp_path), agent)
    assert result.exception_info is None
    assert result.verifier_result.rewards == {"reward": reward}
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.sandbox
async def test_verifier_in_an_environment_of_its_own_gets_only_the_artifacts(tmp_path):
    directory = task(
        tmp_path,
        test="test ! -e /app/hack && cp /app/answer.txt /logs/verifier/ && echo 1 > /logs/verifier/reward.txt\n",
    )
    text = (directory / "task.toml").read_text()
    text = 'artifacts = ["/app/answer.txt"]\n' + text.replace(
        "[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n'
    )
    (directory / "task.toml").write_text(text)
    (directory / "tests" / "Dockerfile").write_text("FROM debian\nCOPY test.sh /tests/test.sh\nWORKDIR /app\n")
    with (directory / "solution" / "solve.sh").open("a") as file:
        file.write("touch /app/hack\n")
    result = await run_trial(tmp_path, directory, "oracle")
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1.0}


@pytest.mark.sandbox
async def test_sixteen_trials_at_once(tmp_path):
    directory = task(tmp_path)
    results = await asyncio.gather(*(run_trial(tmp_path, directory, "oracle") for _ in range(16)))
    assert [result.verifier_result.rewards["reward"] for result in results] == [1.0] * 16
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.sandbox
async def test_cancelled_trial_leaves_nothing(tmp_path):
    directory = task(tmp_path)
    (directory / "solution" / "solve.sh").write_text("#!/bin/bash\nsleep 291\n")
    running = asyncio.create_task(run_trial(tmp_path, directory, "oracle"))
    await asyncio.sleep(1.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for _ in range(100):
        if not list((tmp_path / "state").iterdir()):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the sandbox was not removed")


async def test_host_sandbox_is_refused_without_its_gate(tmp_path, monkeypatch):
    monkeypatch.delenv("HARBOR_ALLOW_HOST_EXEC", raising=False)
    result = await run_trial(tmp_path, task(tmp_path), "oracle", HOST)
    assert result.exception_info.exception_type == "SandboxUnavailable"
    assert "HARBOR_ALLOW_HOST_EXEC=1" in result.exception_info.exception_message


@pytest.mark.sandbox
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_trial_in_the_host_sandbox(tmp_path, monkeypatch, agent, reward):
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    before = {path: path.stat().st_mtime_ns for path in Path("/").iterdir() if not path.is_symlink()}
    result = await run_trial(tmp_path, task(tmp_path), agent, HOST)
    assert result.exception_info is None
    assert result.verifier_result.rewards == {"reward": reward}
    assert set(before) == {path for path in Path("/").iterdir() if not path.is_symlink()}
    assert not Path("/app/answer.txt").exists()
