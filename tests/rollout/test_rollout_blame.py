"""Who is to blame when something breaks, and what is kept as evidence; each failure is brought about for real."""

import asyncio

import pytest
from builders.policy import SOLVE_HELLO, tool_call
from builders.tasks import write_task

from drydock.errors import Blame
from drydock.harness.result import End
from drydock.rollout import Outcome, run_rollout
from drydock.rollout.outcome import Phase

FLAKY = "builders.flaky_environment:FlakyEnvironment"
SCRIPT = "builders.odd_agents:ScriptAgent"
BASH = "builders.bash_environment:BashEnvironment"


def flaky(settings, **kwargs):
    return settings.model_copy(
        update={"environment": FLAKY, "environment_kwargs": {**settings.environment_kwargs, **kwargs}}
    )


def script(settings, **kwargs):
    return settings.model_copy(update={"agent": SCRIPT, "agent_kwargs": kwargs})


async def run(task, serve, settings, spec_for, policy=SOLVE_HELLO):
    async with serve(policy) as proxy:
        return await run_rollout(spec_for(task), settings, proxy)


HEALTHCHECK = (
    '[environment.healthcheck]\ncommand = "test -e /app/up"\nretries = 2\ninterval_sec = 0.05\ntimeout_sec = 5.0\n'
)


async def test_a_failing_health_check_is_the_tasks(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello", toml=HEALTHCHECK)
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame, trajectory.reward) == (Outcome.SANDBOX_ERROR, Blame.TASK, None)
    assert (trajectory.evidence.phase, trajectory.evidence.exception) == (Phase.SANDBOX, "HealthcheckError")
    assert trajectory.turns == 0


def with_step(task, setup: str, toml: str = ""):
    step = task / "steps" / "one"
    for folder in ("tests", "workdir"):
        (step / folder).mkdir(parents=True)
    (step / "instruction.md").write_text("Write hello.\n")
    (step / "tests" / "test.sh").write_text("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n")
    (step / "workdir" / "setup.sh").write_text(setup)
    file = task / "task.toml"
    file.write_text(f'{file.read_text()}\n[[steps]]\nname = "one"\n{toml}')
    return task


@pytest.mark.parametrize(
    ("setup", "toml", "exception", "said"),
    [
        ("echo no such tool >&2; exit 3\n", "", "StepSetupFailed", "no such tool"),
        ("true\n", HEALTHCHECK.replace("environment", "steps"), "HealthcheckError", "2 consecutive retries"),
    ],
)
async def test_a_step_that_cannot_be_set_up_is_the_tasks(
    tmp_path, serve, settings, spec_for, setup, toml, exception, said
):
    task = with_step(write_task(tmp_path / "steps"), setup, toml)
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame, trajectory.turns) == (Outcome.SANDBOX_ERROR, Blame.TASK, 0)
    assert (trajectory.evidence.phase, trajectory.evidence.exception) == (Phase.STEP_SETUP, exception)
    assert said in (trajectory.error or "")


@pytest.mark.parametrize("missing", ["task.toml", "instruction.md", "tests/test.sh"])
async def test_an_incomplete_task_is_the_tasks(tmp_path, serve, settings, spec_for, missing):
    task = write_task(tmp_path / "hello")
    (task / missing).unlink()
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.TASK)
    assert missing.split("/")[-1] in (trajectory.error or "")


async def test_a_dockerfile_that_fails_is_the_tasks(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello", dockerfile="FROM debian:bookworm-slim\nRUN exit 7\n")
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.TASK)
    assert "Dockerfile:2" in (trajectory.error or "")


async def test_a_task_that_wants_what_its_sandbox_cannot_do_is_the_tasks(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello")
    file = task / "task.toml"
    file.write_text(file.read_text().replace('"no-network"', '"allowlist"\nallowed_hosts = ["example.org"]'))
    settings = settings.model_copy(update={"environment": BASH, "environment_kwargs": {}})
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.TASK)
    assert "asks for what its sandbox cannot do" in (trajectory.error or "")


async def test_a_task_that_wants_what_its_agent_cannot_do_is_the_tasks(tmp_path, serve, settings, spec_for):
    server = '[[environment.mcp_servers]]\nname = "docs"\nurl = "http://localhost:1/mcp"\n'
    task = write_task(tmp_path / "hello", toml=server)
    trajectory = await run(task, serve, script(settings), spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.HARNESS_ERROR, Blame.TASK)
    assert "asks for what its agent cannot do: Agent 'script' does not support MCP" in (trajectory.error or "")


async def test_the_gate_of_the_host_sandbox_is_the_users(tmp_path, serve, settings, spec_for, monkeypatch):
    monkeypatch.delenv("HARBOR_ALLOW_HOST_EXEC")
    trajectory = await run(write_task(tmp_path / "hello"), serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.USER)
    assert "HARBOR_ALLOW_HOST_EXEC=1" in (trajectory.error or "")


async def test_a_policy_that_never_answers_is_not_the_models_fault(tmp_path, serve, settings, spec_for):
    class Stuck:
        async def sample(self, *args, **kwargs):
            await asyncio.sleep(600)

    task = write_task(tmp_path / "hello", agent_timeout_s=0.5)
    trajectory = await run(task, serve, settings, spec_for, Stuck())
    assert (trajectory.outcome, trajectory.blame) == (Outcome.AGENT_TIMEOUT, Blame.INFRASTRUCTURE)


async def test_a_policy_that_dawdles_is(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello", agent_timeout_s=1.0)
    trajectory = await run(task, serve, settings, spec_for, [tool_call("terminal", command="sleep 60")])
    assert (trajectory.outcome, trajectory.blame) == (Outcome.AGENT_TIMEOUT, Blame.MODEL)
    assert (trajectory.evidence.phase, trajectory.evidence.agent_end) == (Phase.AGENT, End.INTERRUPTED)
    assert 0 <= trajectory.evidence.sampling_s < 1


async def test_an_agent_that_crashes_is_the_harness_even_if_the_task_is_solved(tmp_path, serve, settings, spec_for):
    crashing = script(settings, command="echo hello > /app/answer.txt", crash="a bug of the agent's")
    trajectory = await run(write_task(tmp_path / "hello"), serve, crashing, spec_for)
    assert (trajectory.outcome, trajectory.blame, trajectory.reward) == (Outcome.HARNESS_ERROR, Blame.HARNESS, None)
    assert trajectory.error == "LookupError: a bug of the agent's"


async def test_an_agent_of_the_users_own_is_graded(tmp_path, serve, settings, spec_for):
    agent = script(settings, command="echo hello > /app/answer.txt")
    trajectory = await run(write_task(tmp_path / "hello"), serve, agent, spec_for)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


async def test_an_agent_that_is_not_set_up_in_time_is_the_harness(tmp_path, serve, settings, spec_for):
    deadlines = settings.deadlines.model_copy(update={"agent_setup_s": 0.2})
    slow = script(settings, slow_setup_s=30.0).model_copy(update={"deadlines": deadlines})
    trajectory = await run(write_task(tmp_path / "hello"), serve, slow, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.HARNESS_ERROR, Blame.HARNESS)
    assert trajectory.evidence.exception == "AgentSetupTimeoutError"


async def test_processes_that_cannot_be_killed_stop_the_grading(tmp_path, serve, settings, spec_for):
    trajectory = await run(write_task(tmp_path / "hello"), serve, flaky(settings, fail_kill=True), spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE)
    assert "could not be killed before grading" in (trajectory.error or "")
    assert "verifier_s" not in trajectory.timings


async def test_tests_that_cannot_be_copied_are_the_sandboxs(tmp_path, serve, settings, spec_for):
    trajectory = await run(write_task(tmp_path / "hello"), serve, flaky(settings, fail_tests=True), spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE)
    assert trajectory.evidence.exception == "AddTestsDirError"


async def test_a_sandbox_that_cannot_be_removed_does_not_take_the_reward(tmp_path, serve, settings, spec_for):
    trajectory = await run(write_task(tmp_path / "hello"), serve, flaky(settings, fail_stop=True), spec_for)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


async def test_what_a_verifier_without_a_reward_printed_is_kept(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello", test="echo pytest is not installed\n")
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.VERIFIER_ERROR, Blame.TASK)
    assert trajectory.evidence.verifier_output == "pytest is not installed"


async def test_rewards_that_the_agent_wrote_itself_do_not_count(tmp_path, serve, settings, spec_for):
    forge = (
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; "
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json; mkdir -p /tests; "
        "echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh"
    )
    policy = [tool_call("terminal", command=forge), tool_call("finish")]
    trajectory = await run(write_task(tmp_path / "hello"), serve, settings, spec_for, policy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 0.0)
