"""Tasks with MCP servers as rollouts of the default agent, in the local sandbox."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from builders.local_sandbox import needs_sandbox
from builders.policy import tool_call
from builders.tasks import write_task

from drydock.errors import Blame, TaskError
from drydock.rollout import Outcome, preflight_task, run_rollout
from drydock.rollout.task_check import check_tasks
from drydock.rollout.trajectory import Trajectory

pytestmark = [pytest.mark.sandbox, needs_sandbox]

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "tests" / "builders" / "mcp_server.sh"
DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY server /opt/server\n"
FINISH = tool_call("finish")
NOTE = tool_call("note", text="hello", summary="kept")


def with_server(directory: Path, *options: str, **parts: Any) -> Path:
    args = json.dumps(["/opt/server", *options])
    table = f'[[environment.mcp_servers]]\nname = "tools"\ntransport = "stdio"\ncommand = "bash"\nargs = {args}\n'
    task = write_task(directory, toml=table, **{"dockerfile": DOCKERFILE, **parts})
    shutil.copy(SERVER, task / "environment" / "server")
    return task


@pytest.fixture
def run(serve, settings, spec_for) -> Callable[..., Any]:
    """`await run(task, policy, **changes of the settings)`: the rollout's trajectory."""

    async def run_one(task: Path, policy: Sequence[str], *, repetition: int = 0, **changes: Any) -> Trajectory:
        async with serve(policy, context_tokens=60_000) as proxy:
            return await run_rollout(
                spec_for(task, repetition), settings.model_copy(update={"environment": "local", **changes}), proxy
            )

    return run_one


async def test_the_policy_works_with_the_tools_of_a_server(tmp_path, run):
    task = with_server(tmp_path / "t")
    policy = [
        tool_call("note", text="hello"),
        NOTE,
        tool_call("tools_terminal"),
        tool_call("terminal", command="cat answer.txt"),
        FINISH,
    ]
    trajectory = await run(task, policy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error
    (tools,) = trajectory.record.tool_sets
    names = ["terminal", "task_tracker", "finish", "note", "die", "silent", "tools_terminal"]
    assert [tool["function"]["name"] for tool in tools] == names
    seen = trajectory.model_dump_json()
    for answer in ("text and summary are needed", "noted by root: kept", "the other terminal"):
        assert answer in seen


async def test_rollouts_of_a_task_share_their_prompt_to_the_byte(tmp_path, run):
    task = with_server(tmp_path / "t")
    first, second = [await run(task, [FINISH], repetition=number) for number in range(2)]
    assert first.record.turns[0].prompt_sha256 == second.record.turns[0].prompt_sha256
    assert first.record.tool_sets == second.record.tool_sets
    assert len(first.record.tool_sets[0]) == 3 + 4


async def test_a_server_that_dies_is_the_policys_to_cope_with(tmp_path, run):
    task = with_server(tmp_path / "t")
    policy = [tool_call("die"), NOTE, tool_call("terminal", command="echo hello > answer.txt"), FINISH]
    trajectory = await run(task, policy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.GRADED, 1.0, 4), trajectory.error
    assert "it ended with exit code 3" in trajectory.model_dump_json()


async def test_a_server_that_does_not_start_masks_the_rollout(tmp_path, run, settings):
    task = with_server(tmp_path / "t", "crash")
    trajectory = await run(task, [FINISH])
    assert (trajectory.outcome, trajectory.blame, trajectory.reward) == (Outcome.HARNESS_ERROR, Blame.TASK, None)
    assert trajectory.turns == 0
    for part in ("the MCP server 'tools' of the task did not start", "exit code 1", "the database is not there"):
        assert part in (trajectory.error or "")


async def test_the_checks_find_a_server_that_does_not_start(tmp_path, settings):
    broken, whole = with_server(tmp_path / "broken", "crash"), with_server(tmp_path / "whole")
    local = settings.model_copy(update={"environment": "local"})
    with pytest.raises(TaskError, match="the MCP server 'tools' of the task did not start"):
        await preflight_task(broken, local)
    assert (await preflight_task(whole, local)).reward == 0.0
    idle = local.model_copy(update={"agent": "nop", "agent_kwargs": {}})
    bad, good = await check_tasks([broken, whole], idle, runs=1)
    assert good.ok, good.faults
    (fault,) = bad.faults
    assert fault.blame is Blame.TASK
    assert "the MCP server 'tools' of the task did not start" in fault.what


async def test_every_step_has_the_servers_and_the_verifier_has_none(tmp_path, run):
    task = with_server(tmp_path / "t")
    for name in ("first", "second"):
        step = task / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(f"Do the part {name}.\n")
        alive = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'bash [/]opt/server' || ls -A /tmp | grep mcp-"
        (step / "tests" / "test.sh").write_text(f"! {{ {alive}; }}; echo $((1 - $?)) > /logs/verifier/reward.txt\n")
        with (task / "task.toml").open("a") as file:
            file.write(f'\n[[steps]]\nname = "{name}"\n')
    trajectory = await run(task, [NOTE, FINISH])
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.GRADED, 1.0, 4), trajectory.error
    assert len(trajectory.record.tool_sets) == 1


def sleeping(marker: str) -> bool:
    """Whether a process of this machine sleeps as long as `marker` says, which no other test does."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes() == f"sleep\0{marker}\0".encode():
                return True
    return False


async def test_a_rollout_that_is_cancelled_while_a_server_is_silent_ends_at_once(tmp_path, serve, settings, spec_for):
    marker = f"600.{os.getpid()}"
    task = with_server(tmp_path / "t", marker)
    async with serve([tool_call("silent")]) as proxy:
        local = settings.model_copy(update={"environment": "local"})
        rollout = asyncio.create_task(run_rollout(spec_for(task), local, proxy, tmp_path / "out"))
        async with asyncio.timeout(60):
            while not sleeping(marker):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not rollout.done()
        rollout.cancel()
        async with asyncio.timeout(20):
            with pytest.raises(asyncio.CancelledError):
                await rollout
    assert not sleeping(marker)
    written = Trajectory.read(tmp_path / "out" / "t_0.error")
    assert (written.outcome, written.blame, written.turns) == (Outcome.CANCELLED, Blame.USER, 1)


async def test_the_servers_run_as_the_agents_user(tmp_path, run):
    as_worker = f"{DOCKERFILE}RUN useradd -m worker && chown worker /app\nUSER worker\n"
    trajectory = await run(with_server(tmp_path / "t", dockerfile=as_worker), [NOTE, FINISH])
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error
    assert "noted by worker: kept" in trajectory.model_dump_json()


HTTP_TABLE = (
    '[[environment.mcp_servers]]\nname = "m"\ntransport = "streamable-http"\nurl = "http://127.0.0.1:9/mcp"\n'
    'headers = { Authorization = "Bearer ${SENTINEL}" }\n'
)


async def test_a_sandbox_without_curl_is_told_what_to_add(tmp_path, run, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SENTINEL", "driver-secret")
    task = write_task(tmp_path / "t", toml=HTTP_TABLE)
    trajectory = await run(task, [FINISH], pass_env=("SENTINEL",))
    assert (trajectory.outcome, trajectory.blame) == (Outcome.HARNESS_ERROR, Blame.TASK)
    assert "its client needs curl in the sandbox; add it to the task's Dockerfile" in (trajectory.error or "")
    assert "driver-secret" not in trajectory.model_dump_json() + caplog.text


def booking(room: str, start: int, end: int, title: str) -> str:
    return tool_call("book", room=room, day="2026-03-10", start=start, end=end, title=title)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_example_is_solved_with_its_servers_tools(run, settings):
    policy = [
        tool_call("list_bookings", day="2026-03-10"),
        booking("birch", 10, 12, "Design review"),
        booking("cedar", 10, 12, "Design review"),
        booking("cedar", 14, 15, "All hands"),
        booking("aster", 10, 11, "One to one"),
        FINISH,
    ]
    kwargs = {**settings.environment_kwargs, "allow_network": True}
    trajectory = await run(ROOT / "examples" / "tasks" / "book-rooms", policy, environment_kwargs=kwargs)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error
    assert "ValueError: birch is taken from 9 to 11 (Budget)" in trajectory.model_dump_json()
