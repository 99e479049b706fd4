import pytest
from builders.tasks import write_task

from drydock.errors import ConfigError, SandboxError, TaskError, VerifierError
from drydock.rollout import preflight_task

BASH = "builders.bash_environment:BashEnvironment"


async def test_a_working_task_tells_what_doing_nothing_earns(tmp_path, settings):
    report = await preflight_task(write_task(tmp_path / "hello"), settings)
    assert (report.task, report.reward, report.rewards) == ("hello", 0.0, {"reward": 0.0})
    assert report.timings["sandbox_s"] >= 0
    assert list((tmp_path / "trials").iterdir()) == []


async def test_a_verifier_without_a_reward_is_named_with_what_it_printed(tmp_path, settings):
    task = write_task(tmp_path / "hello", test="echo the compiler is missing")
    with pytest.raises(VerifierError, match=r"(?s)RewardFileNotFoundError.*the compiler is missing") as raised:
        await preflight_task(task, settings)
    assert str(task) in str(raised.value)


async def test_a_verifier_with_another_reward_key_is_named(tmp_path, settings):
    task = write_task(tmp_path / "hello", test="echo '{\"score\": 1}' > /logs/verifier/reward.json")
    with pytest.raises(VerifierError, match=r"no reward named 'reward' .it left: score."):
        await preflight_task(task, settings)


async def test_a_sandbox_that_does_not_start_is_named(tmp_path, settings):
    settings = settings.model_copy(update={"environment": BASH, "environment_kwargs": {"fail_start": True}})
    with pytest.raises(SandboxError, match="this sandbox refuses to start"):
        await preflight_task(write_task(tmp_path / "hello"), settings)


@pytest.mark.parametrize("missing", ["task.toml", "instruction.md", "tests/test.sh"])
async def test_an_incomplete_task_is_named(tmp_path, settings, missing):
    task = write_task(tmp_path / "hello")
    (task / missing).unlink()
    with pytest.raises((TaskError, SandboxError)) as raised:
        await preflight_task(task, settings)
    assert missing.split("/")[-1] in str(raised.value)
    assert str(task) in str(raised.value)


async def test_an_unknown_sandbox_is_refused_with_the_known_ones(tmp_path, settings):
    settings = settings.model_copy(update={"environment": "dokcer"})
    with pytest.raises(ConfigError, match=r"unknown sandbox 'dokcer'.*local, host"):
        await preflight_task(write_task(tmp_path / "hello"), settings)
