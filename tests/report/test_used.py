"""What a run used, from its metrics."""

import pytest

from drydock.report.used import usage_sums, used_by

RECORDS = [
    {"step": 0, "eval/all/rollouts": 2, "usage/gpu_seconds": 100.0, "usage/sampled_tokens": 20},
    {
        "step": 1,
        "policy/updates": 1,
        "rollouts/graded": 3,
        "rollouts/masked": 1,
        "usage/gpu_seconds": 30.0,
        "usage/sampled_tokens": 1000,
        "usage/cost": 0.5,
    },
    {"step": 2, "policy/updates": 0, "rollouts/graded": 4, "rollouts/masked": 0, "usage/gpu_seconds": 20.0},
]


def test_the_whole_a_step_and_a_rollout_are_told_apart() -> None:
    whole, step, rollout = used_by(RECORDS).split("; ")
    assert whole == "150 GPU s, 1,020 sampled tokens, 0.5 cost"
    assert step == "a step: 25 GPU s, 500 sampled tokens, 0.25 cost"
    assert rollout == "a rollout: 15 GPU s, 102 sampled tokens, 0.05 cost"


@pytest.mark.parametrize("records", [[], [{"step": 1, "policy/updates": 1, "rollouts/graded": 4}]])
def test_a_service_that_does_not_meter_leaves_nothing_to_say(records: list) -> None:
    assert used_by(records) == ""
    assert usage_sums(records) == {}
