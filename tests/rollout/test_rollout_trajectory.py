from pathlib import Path

import pytest

from drydock.proxy.record import RolloutRecord
from drydock.rollout import Outcome, RolloutSpec, Trajectory, path_for


def trajectory(outcome: Outcome, reward: float | None = None, task: str = "task") -> Trajectory:
    return Trajectory(
        rollout_id="r",
        task=task,
        task_path="/t",
        repetition=2,
        step=1,
        split="train",
        outcome=outcome,
        reward=reward,
        record=RolloutRecord(rollout_id="r"),
    )


@pytest.mark.parametrize("outcome", Outcome)
def test_the_file_name_says_whether_the_rollout_broke(tmp_path: Path, outcome: Outcome):
    path = trajectory(outcome).write(tmp_path / "a" / "b")
    assert path.name == ("task_2.error" if outcome.is_failure else "task_2.json")
    assert Trajectory.read(path) == trajectory(outcome)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_second_attempt_replaces_the_first_even_under_the_other_name(tmp_path: Path):
    trajectory(Outcome.SANDBOX_ERROR).write(tmp_path)
    trajectory(Outcome.GRADED, 1.0).write(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["task_2.json"]


def test_a_task_name_cannot_leave_the_folder(tmp_path: Path):
    assert path_for(tmp_path, "../../x y", 0, failed=False) == tmp_path / "..-..-x-y_0.json"


def test_masked_means_no_reward_and_a_reward_of_zero_is_one():
    assert trajectory(Outcome.AGENT_TIMEOUT).masked
    assert not trajectory(Outcome.GRADED, 0.0).masked


def test_rollout_ids_are_unique_and_readable():
    specs = [
        RolloutSpec(task="Find It!/1", task_path=Path("/t"), step=3, split="eval", repetition=1) for _ in range(50)
    ]
    assert len({spec.rollout_id for spec in specs}) == 50
    assert specs[0].rollout_id.startswith("find-it--1-s3-r1-")


def test_a_number_of_the_verifier_that_is_none_reads_back(tmp_path: Path):
    broken = trajectory(Outcome.VERIFIER_ERROR).model_copy(update={"rewards": {"reward": None, "speed": 2.0}})
    assert Trajectory.read(broken.write(tmp_path)) == broken
