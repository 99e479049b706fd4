"""Staleness in steps, from policy versions that count updates."""

import pytest
from builders.trajectories import trajectory

from drydock.errors import JobFailed
from drydock.proxy.record import TurnRecord
from drydock.rollout.trajectory import Trajectory
from drydock.training.policy_versions import PolicyVersions


def sampled_by(*versions: int | None) -> Trajectory:
    one = trajectory()
    turns = [
        TurnRecord.model_construct(index=index, policy_version=version, sampled_ids=[1])
        for index, version in enumerate(versions)
    ]
    one.record.turns.extend(turns)
    return one


def test_a_step_may_take_no_update_one_or_several() -> None:
    versions = PolicyVersions()
    for step, version in enumerate([2, 2, 5], start=1):
        versions.reached(step, version)
    # version 2 is the policy after step 1 and after step 2: the later counts
    assert versions.staleness([sampled_by(0, 2, 5)], 4, allowed=3) == [3, 1, 0]


def test_a_run_that_goes_on_starts_where_it_was() -> None:
    versions = PolicyVersions.at(10, 40)
    versions.reached(11, 44)
    assert versions.staleness([sampled_by(40, 44)], 12, allowed=1) == [1, 0]
    with pytest.raises(JobFailed, match="policy version 39, which is none of this run's"):
        versions.staleness([sampled_by(39)], 12, allowed=9)


@pytest.mark.parametrize(
    ("version", "said"), [(1, "is none of this run's"), (9, "is none"), (0, "expected 2 or later")]
)
def test_a_turn_of_another_policy_stops_the_run(version: int, said: str) -> None:
    versions = PolicyVersions()
    versions.reached(1, 2)
    versions.reached(2, 4)
    with pytest.raises(JobFailed, match=said):
        versions.staleness([sampled_by(4), sampled_by(4, version)], 3, allowed=1)


def test_a_service_that_reports_no_version_cannot_be_checked() -> None:
    assert PolicyVersions().staleness([sampled_by(None, 0)], 1, allowed=0) == [0]


@pytest.mark.parametrize(("step", "version"), [(2, 3), (1, -1)])
def test_steps_are_noted_in_order(step: int, version: int) -> None:
    with pytest.raises(ValueError, match="after step 0"):
        PolicyVersions().reached(step, version)
