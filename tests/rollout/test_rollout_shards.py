"""Rollouts in processes of their own: the same trajectories, and nothing left however a shard or its driver ends."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from builders.local_sandbox import needs_sandbox
from builders.policy import SOLVE_HELLO, tool_call
from builders.scripted_shard import POOL, ScriptedSetup, scripted_shards
from builders.tasks import write_task

from drydock.errors import Blame, DeadlineExceeded, RolloutShardError, UserError
from drydock.proxy.settings import ProxySettings
from drydock.rollout import Outcome, Replacements, RolloutPool, RolloutSettings, Trajectory
from drydock.rollout.shards import RolloutShards, ShardLaunch, ShardLimits
from drydock.sandbox.reaper import reap
from drydock.sandbox.records import read_records

HANGS = [tool_call("terminal", command="echo begun"), tool_call("terminal", command="sleep 600")]
SECRET = "drydock-secret-of-this-test"


@pytest.fixture
def setup_for(tmp_path: Path, tokenizer_folder: Path, settings: RolloutSettings) -> Callable[..., ScriptedSetup]:
    """`setup_for(replies, environment=…)`: shards that take two rollouts each."""

    def make(replies=SOLVE_HELLO, *, environment: str = "host", concurrency: int = 4, **changes) -> ScriptedSetup:
        return ScriptedSetup(
            tokenizer=tokenizer_folder,
            replies=list(replies),
            rollouts=settings.model_copy(
                update={"environment": environment, "agent_kwargs": {"max_turns": 8, "command_timeout_s": 500.0}}
            ),
            limits=ProxySettings(context_tokens=8000, max_new_tokens=500, turn_log=tmp_path / "turns"),
            concurrency=concurrency,
            **changes,
        )

    return make


def shard_processes() -> list[psutil.Process]:
    """The shards of this test's process."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "scripted_shard" in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def turns_logged(folder: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in folder.glob("*.jsonl"))


def told_by_the_policy(trajectory: Trajectory) -> dict:
    """All of a trajectory that does not depend on ids, clocks or directories."""
    record = trajectory.record
    return {
        **trajectory.model_dump(include={"task", "repetition", "outcome", "blame", "reward", "rewards", "turns"}),
        "sampled": [(turn.sampled_ids, turn.logprobs, turn.branch, turn.parent) for turn in record.turns],
        "samples": [(len(s.token_ids), s.loss_mask, s.logprobs, s.turn_indices) for s in record.samples],
        "evidence": trajectory.evidence.model_copy(update={"sampling_s": 0.0}),
    }


async def test_shards_give_the_trajectories_of_a_single_process_and_show_no_secret(
    tmp_path: Path, serve, setup_for, spec_for
) -> None:
    task = write_task(tmp_path / "hello")
    specs = [spec_for(task, repetition) for repetition in range(5)]
    setup = setup_for()
    async with serve() as proxy:
        alone = await RolloutPool(setup.rollouts, proxy, 4).run([spec.fresh() for spec in specs])
    done: list[Trajectory] = []
    async with RolloutShards(scripted_shards(setup, 2, tmp_path / "logs", secret=SECRET)) as shards:
        running = asyncio.create_task(
            shards.pool(POOL, 4).run(specs, out_dir=tmp_path / "out", on_done=done.append), name="rollouts"
        )
        await until(lambda: turns_logged(tmp_path / "turns"))
        processes = shard_processes()
        assert len(processes) == 2
        for process in processes:
            for name in ("cmdline", "environ"):
                assert SECRET.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
        sharded = await running
    assert list(map(told_by_the_policy, sharded)) == list(map(told_by_the_policy, alone))
    assert {one.outcome for one in sharded} == {Outcome.GRADED}
    assert sorted(one.repetition for one in done) == list(range(5))
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [f"hello_{n}.json" for n in range(5)]
    assert all(map(ended, processes))
    logs = {file.name: file.read_text() for file in (tmp_path / "logs").iterdir()}
    assert sorted(logs) == ["shard_0.log", "shard_1.log"]
    assert SECRET not in "".join(logs.values())
    assert "Traceback" not in "".join(logs.values())


@needs_sandbox
@pytest.mark.sandbox
async def test_a_cancellation_returns_when_the_sandboxes_in_the_shards_are_gone(tmp_path, setup_for, spec_for) -> None:
    task = write_task(tmp_path / "hello")
    setup = setup_for(HANGS, environment="local", concurrency=2)
    specs = [spec_for(task, repetition) for repetition in range(3)]
    async with RolloutShards(scripted_shards(setup, 1, tmp_path / "logs")) as shards:
        pool = shards.pool(POOL, 2)
        running = asyncio.create_task(pool.run(specs, out_dir=tmp_path / "out"))
        await until(lambda: turns_logged(tmp_path / "turns") == 4)
        assert len(read_records(tmp_path / "sandboxes")) == 2
        [before] = shard_processes()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert read_records(tmp_path / "sandboxes") == []
        assert list((tmp_path / "trials").iterdir()) == []
        written = [Trajectory.read(file) for file in (tmp_path / "out").iterdir()]
        assert [(one.outcome, one.turns) for one in written] == [(Outcome.CANCELLED, 2)] * 2
        assert [one.pid for one in shard_processes()] == [before.pid]
        assert await pool.run([]) == []
    assert shard_processes() == []


@needs_sandbox
@pytest.mark.sandbox
async def test_a_shard_that_does_not_cancel_in_time_is_killed_with_its_sandboxes(tmp_path, setup_for, spec_for) -> None:
    setup = setup_for(HANGS, environment="local", concurrency=2)
    launch = scripted_shards(setup, 1, tmp_path / "logs", ShardLimits(cancel_s=0.5))
    async with RolloutShards(launch) as shards:
        running = asyncio.create_task(shards.pool(POOL, 2).run([spec_for(write_task(tmp_path / "hello"))]))
        await until(lambda: turns_logged(tmp_path / "turns") == 2)
        [shard] = shard_processes()
        inits = [psutil.Process(record.init[0]) for record in read_records(tmp_path / "sandboxes") if record.init]
        shard.suspend()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended(shard)
        assert len(inits) == 1
        assert ended(inits[0])
        assert read_records(tmp_path / "sandboxes") == []


@needs_sandbox
@pytest.mark.sandbox
async def test_rollouts_of_a_killed_shard_have_no_reward_and_are_replaced_in_a_new_one(
    tmp_path, setup_for, spec_for
) -> None:
    task = write_task(tmp_path / "hello")
    slow = [tool_call("terminal", command="sleep 1"), *SOLVE_HELLO[1:]]
    setup = setup_for(slow, environment="local", concurrency=2)
    fresh = Replacements(budget=4)
    async with RolloutShards(scripted_shards(setup, 1, tmp_path / "logs")) as shards:
        specs = [spec_for(task, repetition) for repetition in range(2)]
        running = asyncio.create_task(
            shards.pool(POOL, 2).run(specs, out_dir=tmp_path / "out", replacements=fresh), name="rollouts"
        )
        await until(lambda: turns_logged(tmp_path / "turns") == 2)
        [shard] = shard_processes()
        shard.kill()
        ended = await running
        assert [one.pid for one in shard_processes()] != [shard.pid]
        assert read_records(tmp_path / "sandboxes") == []
    assert [(one.outcome, one.reward, one.attempt) for one in ended] == [(Outcome.GRADED, 1.0, 1)] * 2
    lost = [Trajectory.read(file) for file in sorted((tmp_path / "out").glob("*.error"))]
    assert [one.rollout_id for one in lost] == [spec.rollout_id for spec in specs]
    for one in lost:
        assert (one.outcome, one.blame, one.reward) == (Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE, None)
        assert one.error == f"rollout shard 0 (process {shard.pid}) was killed by SIGKILL, and the rollout with it"
        assert one.turns == len(one.record.turns) == 1
        assert [message["role"] for message in one.record.messages] == ["system", "user", "assistant"]
        assert one.replaced


@pytest.mark.slow
async def test_a_shard_that_hangs_is_killed_and_its_rollouts_have_no_reward(tmp_path, setup_for, spec_for) -> None:
    launch = scripted_shards(setup_for(HANGS, concurrency=1), 1, tmp_path / "logs", ShardLimits(silent_s=10))
    async with RolloutShards(launch) as shards:
        running = asyncio.create_task(shards.pool(POOL, 1).run([spec_for(write_task(tmp_path / "hello"))]))
        await until(lambda: turns_logged(tmp_path / "turns") == 2)
        [shard] = shard_processes()
        shard.suspend()
        [lost] = await running
        assert ended(shard)
    assert (lost.outcome, lost.blame, lost.turns) == (Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE, 2)
    assert "gave no sign of life for 10 s and was killed by SIGKILL" in (lost.error or "")


DIES_OF_EACH_ROLLOUT = """
import socket, sys, struct
link = socket.socket(fileno=int(sys.argv[2]))
said = b'{"kind":"ready"}'
link.sendall(struct.pack("!II", len(said), 0) + said)
heard = b""
while b'"run"' not in heard:
    heard += link.recv(1 << 20) or sys.exit(0)
print("out of luck", flush=True)
sys.exit(5)
"""


async def test_a_shard_that_every_rollout_kills_ends_the_run_with_its_name(tmp_path, spec_for) -> None:
    launch = ShardLaunch(command=(sys.executable, "-c", DIES_OF_EACH_ROLLOUT), setups=[b"{}"], log_dir=tmp_path)
    specs = [spec_for(tmp_path / "hello", repetition) for repetition in range(12)]
    done: list[Trajectory] = []
    async with RolloutShards(launch) as shards:
        with pytest.raises(RolloutShardError, match=r"rollout shard 0 died 4 times .*; it ended with exit code 5"):
            await shards.pool(POOL, 2).run(specs, on_done=done.append)
    assert 4 <= len(done) <= 8
    assert {(one.outcome, one.evidence.exception, one.reward) for one in done} == {
        (Outcome.SANDBOX_ERROR, "ShardDied", None)
    }
    assert all(one.evidence.shard_log.endswith("out of luck") for one in done)


async def test_a_shard_that_keeps_dying_ends_the_run_with_its_name(tmp_path) -> None:
    dies = (sys.executable, "-c", "import sys; sys.exit('out of luck')")
    launch = ShardLaunch(command=dies, setups=[b"{}", b"{}"], log_dir=tmp_path)
    with pytest.raises(
        RolloutShardError, match=r"rollout shard \d died 4 times .* it ended with exit code 1; see .*log"
    ):
        async with RolloutShards(launch):
            pass
    assert (tmp_path / "shard_0.log").read_text().startswith("out of luck\n")


async def test_a_shard_that_never_comes_up_is_given_up_and_gone(tmp_path) -> None:
    deaf = (sys.executable, "-c", "import time; time.sleep(600)  # scripted_shard")
    limits = ShardLimits(start_s=0.5, stop_s=0.2)
    launch = ShardLaunch(command=deaf, setups=[b"{}"], log_dir=tmp_path, limits=limits)
    with pytest.raises(DeadlineExceeded, match=r"gave up waiting for rollout shard 0 \(process \d+\) to start"):
        async with RolloutShards(launch):
            pass
    assert shard_processes() == []


async def test_what_a_shard_finds_wrong_at_its_start_is_said(tmp_path, setup_for) -> None:
    launch = scripted_shards(setup_for(refusal="no such agent"), 1, tmp_path / "logs")
    with pytest.raises(UserError, match=r"rollout shard 0 \(process \d+\) cannot start: no such agent"):
        async with RolloutShards(launch):
            pass
    assert shard_processes() == []


DRIVER = """
import asyncio, sys
from pathlib import Path
from builders.scripted_shard import POOL, ScriptedSetup, scripted_shards
from drydock.rollout import RolloutSpec
from drydock.rollout.shards import RolloutShards

async def main():
    work = Path(sys.argv[1])
    setup = ScriptedSetup.model_validate_json((work / "setup.json").read_bytes())
    specs = [RolloutSpec("hello", work / "hello", 1, "train", number) for number in range(4)]
    async with RolloutShards(scripted_shards(setup, 2, work / "logs")) as shards:
        await shards.pool(POOL, 4).run(specs)

asyncio.run(main())
"""


@pytest.fixture
def killed_driver(tmp_path: Path, setup_for) -> Iterator[subprocess.Popen[bytes]]:
    write_task(tmp_path / "hello")
    (tmp_path / "setup.json").write_text(setup_for(HANGS, environment="local").model_dump_json())
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], env=environment) as process:
        yield process
        process.kill()


@needs_sandbox
@pytest.mark.sandbox
def test_a_killed_driver_takes_its_shards_and_their_sandboxes_with_it(tmp_path, killed_driver) -> None:
    ends_at = time.monotonic() + 60
    while turns_logged(tmp_path / "turns") < 8:
        assert killed_driver.poll() is None
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    processes = psutil.Process(killed_driver.pid).children(recursive=True)
    inits = [psutil.Process(record.init[0]) for record in read_records(tmp_path / "sandboxes") if record.init]
    assert sum("scripted_shard" in " ".join(process.cmdline()) for process in processes) == 2
    assert len(inits) == 4
    killed_driver.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs([*processes, *inits], timeout=20)
    assert all(map(ended, alive))
    reap(tmp_path / "sandboxes")
    assert list((tmp_path / "sandboxes").iterdir()) == []
