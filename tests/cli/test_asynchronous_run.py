"""Asynchronous training from end to end: rollouts of later steps go on while the trainer works."""

import json
from pathlib import Path

import pytest
from builders.demo_run import DIFFERENT_REWARDS, build_demo_run
from builders.driver import driver
from builders.local_sandbox import needs_sandbox

from drydock.rollout.trajectory import Trajectory

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(180),
    needs_sandbox,
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("asynchronous")
    config = build_demo_run(folder / "data", train_tasks=12, verifier=DIFFERENT_REWARDS)
    settings = [
        f"sandbox.state_dir={folder / 'state'}",
        f"trainer.ckpt_path={folder / 'run'}",
        "trainer.max_training_steps=5",
        "trainer.max_staleness_steps=2",
        "trainer.eval_before_train=false",
        "trainer.eval_after_train=false",
        "trainer.save_final_checkpoint=false",
        "trainer.policy_mini_batch_size=1",
        "generator.oversample_share=0.5",
    ]
    with driver(["train", str(config), *settings], folder / "state", folder) as running:
        assert running.end() == 0, running.output
    return folder / "run", running.output


def test_staleness_is_bounded_and_corrected_for(finished: tuple[Path, str]) -> None:
    run, output = finished
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    stalest = [record["staleness/max"] for record in records]
    assert stalest[0] == 0
    assert 1 <= max(stalest) <= 2
    for record in records:
        assert record["policy/updates"] == 2
        assert 0 < record["policy/off_policy_weight"] <= 2
        assert record["tokens/retokenized"] == record["tokens/unrecorded"] == record["tokens/wrong_logprobs"] == 0
    assert "Traceback" not in output


def test_a_turns_policy_version_tells_its_staleness(finished: tuple[Path, str]) -> None:
    run, _ = finished
    for step in range(1, 6):
        files = sorted((run / "trajectories" / f"step_{step}" / "train").glob("*.json"))
        versions = {turn.policy_version for file in files for turn in Trajectory.read(file).record.turns}
        # three updates of the warm start, then two a step
        assert versions <= {3 + 2 * trained for trained in range(max(0, step - 3), step)}


def test_groups_are_trained_whole(finished: tuple[Path, str]) -> None:
    run, _ = finished
    for folder in (run / "trajectories").glob("step_*/train"):
        trained: dict[str, int] = {}
        for file in folder.glob("*.json"):
            one = Trajectory.read(file)
            if one.advantage is not None:
                trained[one.task] = trained.get(one.task, 0) + 1
        assert len(trained) >= 2
        assert set(trained.values()) == {2}
    assert list((run / "turns").iterdir()) == []
