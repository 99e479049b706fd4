"""`drydock train` with its rollouts in processes of their own: what it leaves behind, however it ends."""

import json
import signal
import time
from pathlib import Path

import psutil
import pytest
from builders.demo_run import SLOW, build_demo_run
from builders.driver import Footprint, driver, mounts_below, processes_of
from builders.local_sandbox import needs_sandbox

from drydock.rollout.trajectory import Trajectory

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(240),
    needs_sandbox,
]

SLOW_AND_DIFFERENT = "#!/bin/bash\nsleep 1\ndate +0.1%N > /logs/verifier/reward.txt\n"
TWO_SHARDS = "generator.rollouts_per_process=2"
TOKEN = "drydock-token-of-this-test"


def shards_in(footprint: Footprint) -> list[psutil.Process]:
    return [one for one in footprint.processes if "drydock.training.rollout_shard" in one.cmdline()]


@pytest.mark.slow
def test_a_run_outlives_one_of_its_shards_and_leaves_nothing(tmp_path: Path) -> None:
    config = build_demo_run(tmp_path / "data", train_tasks=2, verifier=SLOW_AND_DIFFERENT)
    run, state = tmp_path / "run", tmp_path / "state"
    settings = [
        f"sandbox.state_dir={state}",
        f"trainer.ckpt_path={run}",
        "trainer.eval_before_train=false",
        "generator.replacement_share=1",
        TWO_SHARDS,
    ]
    with driver(["train", str(config), *settings], state, tmp_path, {"DRYDOCK_SERVICE_TOKEN": TOKEN}) as running:
        running.wait_for("step 1 of 1: rollouts")
        while len((before := running.footprint()).sandboxes) < 4:
            assert running.process.poll() is None, running.output
        shards = shards_in(before)
        assert len(shards) == 2
        for shard in shards:
            assert "libtorch" not in Path(f"/proc/{shard.pid}/maps").read_text()
            for name in ("cmdline", "environ"):
                assert TOKEN.encode() not in Path(f"/proc/{shard.pid}/{name}").read_bytes()
        shards[0].kill()
        assert running.end() == 0, running.output
        assert before.remains() == []
        assert processes_of(state) == []
        assert list((state / "sandboxes").glob("*")) == []
        assert mounts_below(state, run) == []
    step = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert (step["rollouts/graded"], step["rollouts/replaced"]) == (4, 2)
    lost = [Trajectory.read(file) for file in run.glob("trajectories/step_1/train/*.error")]
    assert [(one.outcome, one.blame, one.replaced) for one in lost] == [("sandbox_error", "infrastructure", True)] * 2
    assert all(f"(process {shards[0].pid}) was killed by SIGKILL" in (one.error or "") for one in lost)
    assert sorted(file.name for file in (run / "shards").iterdir()) == ["shard_0.log", "shard_1.log"]
    assert list((run / "turns").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_the_end_of_the_driver_is_that_of_its_shards(tmp_path: Path, number: signal.Signals) -> None:
    config = build_demo_run(tmp_path / "data", train_tasks=2, verifier=SLOW)
    run, state = tmp_path / "run", tmp_path / "state"
    settings = [f"sandbox.state_dir={state}", f"trainer.ckpt_path={run}", "warm_start=[]", TWO_SHARDS]
    arguments = ["train", str(config), *settings, "trainer.eval_before_train=false"]
    with driver([*arguments, "generator.n_samples_per_prompt=16"], state, tmp_path) as running:
        running.wait_for("step 1 of 1: rollouts")
        while len((before := running.footprint()).sandboxes) < 4:
            assert running.process.poll() is None, running.output
        assert len(shards_in(before)) == 2
        running.stop(number)
        deadline = time.monotonic() + 20
        while before.remains() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert before.remains() == []
        assert processes_of(state) == []
    if number is signal.SIGTERM:
        assert list((state / "sandboxes").glob("*")) == []
        assert "Traceback" not in running.output
