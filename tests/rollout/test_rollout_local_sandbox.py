"""Rollouts in the default sandbox: one that is solved, one that is cut off, one that is cancelled."""

import asyncio

import pytest
from builders.local_sandbox import needs_sandbox
from builders.policy import SOLVE_HELLO, tool_call
from builders.tasks import write_task

from drydock.rollout import Outcome, RolloutPool, preflight_task, run_rollout

pytestmark = [
    pytest.mark.sandbox,
    needs_sandbox,
]


@pytest.fixture
def local(settings):
    return settings.model_copy(update={"environment": "local"})


async def test_tasks_are_solved_side_by_side_and_nothing_of_a_rollout_is_left(tmp_path, serve, local, spec_for):
    task = write_task(tmp_path / "hello", dockerfile="FROM debian:bookworm-slim\nWORKDIR /app\nRUN mkdir -p /srv/x\n")
    report = await preflight_task(task, local)
    assert report.reward == 0.0
    async with serve() as proxy:
        pool = RolloutPool(local, proxy, concurrency=3)
        trajectories = await pool.run([spec_for(task, repetition) for repetition in range(4)])
    assert [(trajectory.outcome, trajectory.reward) for trajectory in trajectories] == [(Outcome.GRADED, 1.0)] * 4
    assert list((tmp_path / "trials").iterdir()) == []
    assert "drydock" not in "".join(line for line in open("/proc/mounts") if str(tmp_path) in line)  # noqa: ASYNC230, PTH123, SIM115


async def test_a_command_and_an_agent_are_cut_off_and_leave_no_process(tmp_path, serve, local, spec_for):
    limits = {"agent_kwargs": {**local.agent_kwargs, "command_timeout_s": 1.0}}
    async with serve([tool_call("terminal", command="echo begun; sleep 600"), *SOLVE_HELLO[2:]]) as proxy:
        task = write_task(tmp_path / "hello")
        stopped = await run_rollout(spec_for(task), local.model_copy(update=limits), proxy)
    answers = [message["content"] for message in stopped.record.messages if message["role"] == "tool"]
    assert answers[0].endswith("[stopped: the command ran longer than 1 s]")
    assert (stopped.outcome, stopped.reward) == (Outcome.GRADED, 1.0)
    async with serve([tool_call("terminal", command="sleep 600")]) as proxy:
        task = write_task(tmp_path / "short", agent_timeout_s=1.0)
        late = await run_rollout(spec_for(task), local, proxy)
    assert (late.outcome, late.reward) == (Outcome.AGENT_TIMEOUT, None)
    assert late.timings["total_s"] < 15


async def test_what_the_agent_left_running_cannot_touch_the_grading(tmp_path, serve, local, spec_for):
    leave = "(while sleep 0.2; do echo hello > /app/answer.txt; done) >/dev/null 2>&1 &"
    test = "rm -f /app/answer.txt; sleep 0.8; test -e /app/answer.txt; echo $? > /logs/verifier/reward.txt"
    async with serve([tool_call("terminal", command=leave), tool_call("finish")]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello", test=test)), local, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


async def test_a_cancelled_pool_removes_its_sandboxes(tmp_path, serve, local, spec_for):
    task = write_task(tmp_path / "hello")
    async with serve([tool_call("terminal", command="sleep 600")]) as proxy:
        pool = RolloutPool(local, proxy, concurrency=3)
        running = asyncio.create_task(pool.run([spec_for(task, repetition) for repetition in range(5)]))
        await asyncio.sleep(1.5)
        running.cancel()
        async with asyncio.timeout(20):
            with pytest.raises(asyncio.CancelledError):
                await running
    assert list((tmp_path / "trials").iterdir()) == []
    with open("/proc/mounts") as mounts:  # noqa: ASYNC230, PTH123
        assert [line for line in mounts if str(tmp_path) in line] == []


@pytest.mark.parametrize(
    "removal",
    [
        "rm -rf /logs",
        "rm -rf /logs && touch /logs",
        "rm -rf /logs/verifier && touch /logs/verifier",
        "rm -rf /logs/verifier && ln -s nowhere /logs/verifier",
        "chmod 000 /logs/verifier /logs/agent",
    ],
)
async def test_an_agent_cannot_escape_its_grading_by_removing_the_log_directories(
    tmp_path, serve, local, spec_for, removal
):
    policy = [tool_call("terminal", command=removal), tool_call("finish")]
    async with serve(policy) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), local, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 0.0), trajectory.error
