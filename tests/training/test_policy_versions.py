"""Staleness in steps, from policy versions that count updates."""

import pytest
from builders.trajectories import trajectory

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
    assert versions.staleness([sampled_by(0, 2, 5)], 4) == [3, 1, 0]


def test_a_run_that_goes_on_starts_where_it_was() -> None:
    versions = PolicyVersions.at(10, 40)
    versions.reached(11, 44)
    assert versions.staleness([sampled_by(40, 44)], 12) == [1, 0]
    assert versions.staleness([sampled_by(39, 44)], 12) == [0]
    assert versions.allowed(12, 5) == (40, 44)


@pytest.mark.parametrize(
    ("staleness", "allowed"), [(0, (4,)), (1, (2, 4)), (2, (2, 4)), (3, (0, 2, 4)), (9, (0, 2, 4))]
)
def test_the_versions_that_may_have_sampled_a_step(staleness: int, allowed: tuple[int, ...]) -> None:
    versions = PolicyVersions()
    for step, version in enumerate([2, 2, 4, 4, 9], start=1):
        versions.reached(step, version)
    assert versions.allowed(4, staleness) == allowed


def test_a_service_that_reports_no_version_cannot_be_checked() -> None:
    assert PolicyVersions().staleness([sampled_by(None, 0)], 1) == [0]


@pytest.mark.parametrize(("step", "version"), [(2, 3), (1, -1)])
def test_steps_are_noted_in_order(step: int, version: int) -> None:
    with pytest.raises(ValueError, match="after step 0"):
        PolicyVersions().reached(step, version)
