"""Every outcome, brought about for real: real SDK, real Harbor trial and verifier, real proxy, real sandbox."""

import asyncio
import os
from pathlib import Path

import pytest
from builders.policy import SOLVE_HELLO, by_turn, tool_call
from builders.tasks import write_task

from drydock.errors import Blame
from drydock.proxy.audit import audit
from drydock.rollout import Outcome, Trajectory, run_rollout
from drydock.rollout.reward import RewardRule

BASH = "builders.bash_environment:BashEnvironment"


def with_agent(settings, **kwargs):
    return settings.model_copy(update={"agent_kwargs": {**settings.agent_kwargs, **kwargs}})


def with_deadlines(settings, **seconds):
    return settings.model_copy(update={"deadlines": settings.deadlines.model_copy(update=seconds)})


async def test_a_solved_task_is_graded_and_every_trained_token_was_sampled(tmp_path, serve, settings, spec_for):
    async with serve() as proxy:
        spec = spec_for(write_task(tmp_path / "hello"))
        trajectory = await run_rollout(spec, settings, proxy, tmp_path / "out")
    assert (trajectory.outcome, trajectory.reward, trajectory.error) == (Outcome.GRADED, 1.0, None)
    assert trajectory.submitted
    assert trajectory.blame is None
    assert trajectory.turns == 4
    assert trajectory.record.branch_reasons == {}
    assert len(trajectory.record.samples) == 1
    tokens = audit(trajectory.record)
    assert tokens.clean
    assert tokens.trained_tokens == sum(len(turn.sampled_ids) for turn in trajectory.record.turns) > 0
    assert {"sandbox_s", "agent_s", "verifier_s", "total_s"} <= set(trajectory.timings)
    answers = [message["content"] for message in trajectory.record.messages if message["role"] == "tool"]
    assert answers == ["[no output]", "/app/d\né", "[no output]"]
    assert Trajectory.read(tmp_path / "out" / "hello_0.json") == trajectory
    assert list((tmp_path / "trials").iterdir()) == []


async def test_a_wrong_answer_is_graded_zero(tmp_path, serve, settings, spec_for):
    async with serve([tool_call("finish")]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.submitted) == (Outcome.GRADED, 0.0, True)


async def test_a_closing_text_is_a_submission(tmp_path, serve, settings, spec_for):
    async with serve([SOLVE_HELLO[2], "I wrote the file."]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.GRADED, 1.0, 2)


@pytest.mark.parametrize("transport", ["direct", "litellm"])
async def test_a_closing_text_that_was_cut_off_is_no_submission(tmp_path, serve, settings, spec_for, transport):
    settings = with_agent(settings, transport=transport)
    async with serve(["A long text that nobody will see the end of."], max_new_tokens=3) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.TURNS_EXHAUSTED, None)
    assert not trajectory.submitted


@pytest.mark.parametrize(("unsubmitted", "reward"), [("mask", None), ("grade", 1.0)])
async def test_running_out_of_turns(tmp_path, serve, settings, spec_for, unsubmitted, reward):
    settings = with_agent(settings, max_turns=3).model_copy(update={"unsubmitted": unsubmitted})
    async with serve([SOLVE_HELLO[2], tool_call("terminal", command="true")]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy, tmp_path / "out")
    assert (trajectory.outcome, trajectory.reward) == (Outcome.TURNS_EXHAUSTED, reward)
    assert (trajectory.turns, trajectory.submitted, trajectory.blame) == (3, False, Blame.MODEL)
    assert (tmp_path / "out" / "hello_0.json").exists()
    assert audit(trajectory.record).clean


@pytest.mark.parametrize(("unsubmitted", "reward"), [("mask", None), ("grade", 0.0)])
async def test_a_full_context(tmp_path, serve, settings, spec_for, unsubmitted, reward):
    settings = settings.model_copy(update={"unsubmitted": unsubmitted})
    async with serve([tool_call("terminal", command="seq 500")], context_tokens=1500) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.CONTEXT_FULL, reward)
    assert trajectory.record.context_full
    assert not trajectory.submitted


async def test_an_agent_that_sleeps_past_its_deadline(tmp_path, serve, settings, spec_for):
    settings = with_deadlines(settings, agent_s=1.5)
    async with serve([tool_call("terminal", command="echo $$ > /app/pid; sleep 600")]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy, tmp_path / "out")
    assert (trajectory.outcome, trajectory.reward) == (Outcome.AGENT_TIMEOUT, None)
    assert "1.5 seconds" in (trajectory.error or "")
    assert trajectory.timings["total_s"] < 15
    assert "verifier_s" not in trajectory.timings
    assert (tmp_path / "out" / "hello_0.error").exists()
    assert audit(trajectory.record).clean


async def test_the_tasks_own_shorter_limit_wins(tmp_path, serve, settings, spec_for):
    async with serve([tool_call("terminal", command="sleep 600")]) as proxy:
        task = write_task(tmp_path / "hello", agent_timeout_s=1.0)
        trajectory = await run_rollout(spec_for(task), settings, proxy)
    assert trajectory.outcome is Outcome.AGENT_TIMEOUT
    assert trajectory.timings["agent_s"] < 10


async def test_a_slow_model_runs_into_the_agents_deadline_too(tmp_path, serve, settings, spec_for):
    class Slow:
        async def sample(self, *args, **kwargs):
            await asyncio.sleep(600)

    async with serve(Slow()) as proxy:
        task = write_task(tmp_path / "hello", agent_timeout_s=1.0)
        trajectory = await run_rollout(spec_for(task), settings, proxy)
    assert trajectory.outcome is Outcome.AGENT_TIMEOUT
    assert trajectory.turns == 0


VERIFIERS = {
    "nothing": ("true", "RewardFileNotFoundError"),
    "an empty file": ("touch /logs/verifier/reward.txt", "RewardFileEmptyError"),
    "nan": ("echo nan > /logs/verifier/reward.txt", "VerifierOutputParseError"),
    "infinity": ("echo '{\"reward\": Infinity}' > /logs/verifier/reward.json", "VerifierOutputParseError"),
    "words": ("echo good > /logs/verifier/reward.txt", "VerifierOutputParseError"),
    "another key": ("echo '{\"score\": 1}' > /logs/verifier/reward.json", "no reward named 'reward' (it left: score)"),
}


@pytest.mark.parametrize("left", VERIFIERS)
async def test_a_verifier_that_leaves_no_valid_reward(tmp_path, serve, settings, spec_for, left):
    test, message = VERIFIERS[left]
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello", test=test)), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.VERIFIER_ERROR, None)
    assert message in (trajectory.error or "")
    assert trajectory.blame is Blame.TASK


async def test_the_reward_key_is_a_setting(tmp_path, serve, settings, spec_for):
    test = 'echo \'{"reward": 0, "tests_passed": 0.75}\' > /logs/verifier/reward.json'
    settings = settings.model_copy(update={"reward": RewardRule(key="tests_passed")})
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello", test=test)), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 0.75)
    assert trajectory.rewards == {"reward": 0.0, "tests_passed": 0.75}


async def test_a_verifier_that_never_ends(tmp_path, serve, settings, spec_for):
    settings = with_deadlines(settings, verifier_s=1.0)
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello", test="sleep 600")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.VERIFIER_ERROR, None)
    assert "VerifierTimeoutError" in (trajectory.error or "")


async def test_a_sampler_that_raises(tmp_path, serve, settings, spec_for):
    class Broken:
        async def sample(self, *args, **kwargs):
            raise ConnectionError("the sampler is gone")

    async with serve(Broken()) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy, tmp_path / "out")
    assert (trajectory.outcome, trajectory.reward) == (Outcome.SAMPLER_ERROR, None)
    assert trajectory.blame is Blame.INFRASTRUCTURE
    assert "the sampler is gone" in (trajectory.error or "")
    assert "verifier_s" not in trajectory.timings


async def test_a_sandbox_that_does_not_start(tmp_path, serve, settings, spec_for):
    settings = settings.model_copy(update={"environment": BASH, "environment_kwargs": {"fail_start": True}})
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.SANDBOX_ERROR, None)
    assert "this sandbox refuses to start" in (trajectory.error or "")


async def test_a_sandbox_that_is_lost_while_the_agent_works(tmp_path, serve, settings, spec_for):
    settings = settings.model_copy(update={"environment": BASH, "environment_kwargs": {"fail_exec": True}})
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.SANDBOX_ERROR, None)
    assert "the sandbox is gone" in (trajectory.error or "")


@pytest.mark.parametrize("transport", ["direct", "litellm"])
async def test_an_endpoint_that_refuses_the_agent(tmp_path, serve, settings, spec_for, transport):
    """A key that was revoked behind the agent's back ends as an error of the sampling side, never as reward 0."""
    async with serve() as proxy:
        spec = spec_for(write_task(tmp_path / "hello"))
        opened = proxy.open_rollout

        def open_and_close(rollout_id, **kwargs):
            session = opened(rollout_id, **kwargs)
            session.record.sampler_error = "refused"
            return session

        proxy.open_rollout = open_and_close
        trajectory = await run_rollout(spec, with_agent(settings, transport=transport), proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.SAMPLER_ERROR, None)


async def test_wrong_agent_settings_are_the_harness_fault(tmp_path, serve, settings, spec_for):
    async with serve() as proxy:
        spec = spec_for(write_task(tmp_path / "hello"))
        trajectory = await run_rollout(spec, with_agent(settings, tools=["browser"]), proxy)
    assert trajectory.outcome is Outcome.HARNESS_ERROR
    assert "unknown tool 'browser'" in (trajectory.error or "")


async def test_a_broken_task_is_a_trajectory_too(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello")
    (task / "tests" / "test.sh").unlink()
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(task), settings, proxy, tmp_path / "out")
    assert trajectory.outcome is Outcome.SANDBOX_ERROR
    assert "test.sh" in (trajectory.error or "")


async def test_the_overall_deadline_ends_a_rollout_whose_phases_are_all_in_time(tmp_path, serve, settings, spec_for):
    settings = with_deadlines(settings, total_s=1.5)
    async with serve([tool_call("terminal", command="sleep 600")]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert trajectory.outcome is Outcome.AGENT_TIMEOUT
    assert "the rollout took longer than 1.5 s" in (trajectory.error or "")


def running_with(marker: str) -> list[str]:
    """Command lines of the live processes that mention `marker`."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marker in line:
            found.append(line)
    return found


async def test_a_cancelled_rollout_is_written_down_and_leaves_nothing_running(tmp_path, serve, settings, spec_for):
    marker = f"sleep 31{os.getpid()}"
    async with serve([tool_call("terminal", command=marker)]) as proxy:
        spec = spec_for(write_task(tmp_path / "hello"))
        task = asyncio.create_task(run_rollout(spec, settings, proxy, tmp_path / "out"))
        async with asyncio.timeout(20):
            while not running_with(marker):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running_with(marker) == []
        assert list((tmp_path / "trials").iterdir()) == []
        written = Trajectory.read(tmp_path / "out" / "hello_0.error")
        assert (written.outcome, written.reward, written.turns) == (Outcome.CANCELLED, None, 1)
        own = ("rollout-", "trial-", "agent-")
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(own)] == []


async def test_what_the_agent_left_running_is_dead_before_the_verifier_looks(tmp_path, serve, settings, spec_for):
    marker = f"32{os.getpid()}"
    leave = f"(while sleep 0.2; do echo hello > /app/answer.txt; done; echo {marker}) >/dev/null 2>&1 &"
    test = "rm -f /app/answer.txt; sleep 0.8; test -e /app/answer.txt; echo $? > /logs/verifier/reward.txt"
    async with serve([tool_call("terminal", command=leave), tool_call("finish")]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello", test=test)), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


@pytest.mark.parametrize("transport", ["direct", "litellm"])
async def test_prompts_are_the_same_bytes_in_every_rollout_and_over_either_transport(
    tmp_path, serve, settings, spec_for, template, transport
):
    sampler = by_turn(template, SOLVE_HELLO)
    async with serve(sampler) as proxy:
        task = write_task(tmp_path / "hello")
        for repetition in range(2):
            await run_rollout(spec_for(task, repetition), with_agent(settings, transport=transport), proxy)
    prompts = [ids for ids, _, _ in sampler.calls]
    assert len(prompts) == 8
    assert prompts[:4] == prompts[4:]
    first = template.decode(prompts[0])
    assert "Write the word hello into /app/answer.txt." in first
    assert str(Path.home()) not in first
    assert "2026" not in first


@pytest.mark.parametrize("transport", ["direct", "litellm"])
async def test_no_file_of_a_trial_holds_the_key(tmp_path, serve, settings, spec_for, transport):
    settings = with_agent(settings, transport=transport).model_copy(update={"keep_trials": "always"})
    keys: list[str] = []
    async with serve([tool_call("terminal", command="env; cat /proc/self/environ"), *SOLVE_HELLO[2:]]) as proxy:
        opened = proxy.open_rollout

        def remember(rollout_id, **kwargs):
            session = opened(rollout_id, **kwargs)
            keys.append(session.api_key)
            return session

        proxy.open_rollout = remember
        spec = spec_for(write_task(tmp_path / "hello"))
        trajectory = await run_rollout(spec, settings, proxy, tmp_path / "out")
    assert trajectory.outcome is Outcome.GRADED
    files = [file for folder in ("trials", "out") for file in (tmp_path / folder).rglob("*") if file.is_file()]
    assert {"config.json", "result.json"} <= {file.name for file in files}
    assert [file for file in files if keys[0].encode() in file.read_bytes()] == []
