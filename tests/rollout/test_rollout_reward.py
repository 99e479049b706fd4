"""The rule that makes one reward of what a verifier left."""

import math

import pytest
from builders.policy import SOLVE_HELLO
from builders.tasks import write_task
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from drydock.errors import Blame
from drydock.rollout import Outcome, RewardRule, preflight_task, run_rollout
from drydock.rollout.reward import read_reward

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
SMALL = st.floats(-1e6, 1e6)
SINGLE_PRECISION_MAX = (2 - 2**-23) * 2.0**127


def test_the_key_alone_counts_without_weights() -> None:
    assert read_reward({"reward": 0.5, "style": 9.0}, RewardRule()) == (0.5, None)
    assert read_reward({"reward": 0.5, "style": 9.0}, RewardRule(key="style")) == (9.0, None)


def test_weights_are_summed_as_they_are() -> None:
    rule = RewardRule(weights={"tests": 1.0, "style": 0.25, "too_long": -0.5})
    assert read_reward({"tests": 1.0, "style": 1.0, "too_long": 1.0, "reward": 7.0}, rule) == (0.75, None)


def test_a_number_that_has_a_weight_but_was_not_left_is_named() -> None:
    reward, problem = read_reward({"tests": 1.0}, RewardRule(weights={"tests": 1.0, "style": 1.0}))
    assert (reward, problem) == (None, "the verifier left no reward named 'style' (it left: tests)")


@pytest.mark.parametrize(("value", "clipped"), [(-0.5, 0.0), (1.5, 1.0), (0.25, 0.25), (1.0, 1.0)])
def test_out_of_range_is_refused_or_moved_to_the_nearer_end(value: float, clipped: float) -> None:
    inside = value == clipped
    refused, problem = read_reward({"reward": value}, RewardRule(lowest=0, highest=1))
    assert (refused, problem is None) == ((value, True) if inside else (None, False))
    assert read_reward({"reward": value}, RewardRule(lowest=0, highest=1, out_of_range="clip")) == (clipped, None)


def test_one_end_is_enough() -> None:
    assert read_reward({"reward": 1e9}, RewardRule(lowest=0)) == (1e9, None)
    assert read_reward({"reward": -1e-9}, RewardRule(lowest=0))[1] is not None


@given(st.dictionaries(st.sampled_from(["reward", "a", "b"]), NUMBERS), st.booleans(), SMALL, st.floats(0.1, 1e6))
def test_a_reward_is_finite_in_range_and_single_precision_or_there_is_a_reason(
    rewards: dict[str, float], clips: bool, lowest: float, width: float
) -> None:
    rule = RewardRule(lowest=lowest, highest=lowest + width, out_of_range="clip" if clips else "mask")
    reward, problem = read_reward(rewards, rule)
    assert (reward is None) != (problem is None)
    if reward is not None:
        assert lowest <= reward <= lowest + width
    if clips and math.isfinite(rewards.get("reward", math.nan)):
        assert problem is None


@given(NUMBERS)
@example(SINGLE_PRECISION_MAX)
@example(math.nextafter(SINGLE_PRECISION_MAX, math.inf))
@example(math.nan)
def test_without_a_range_every_finite_number_of_the_trainers_precision_counts(value: float) -> None:
    reward, problem = read_reward({"reward": value}, RewardRule())
    if abs(value) <= SINGLE_PRECISION_MAX:
        assert (reward, problem) == (value, None)
    else:
        assert reward is None
        assert problem


@pytest.mark.parametrize(
    "wrong",
    [
        {"lowest": 1, "highest": 0},
        {"lowest": math.nan},
        {"weights": {"a": math.inf}},
        {"weights": {"a": 0.0}},
        {"key": ""},
        {"keys": "a"},
    ],
)
def test_a_rule_that_cannot_be_met_is_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        RewardRule(**wrong)


TWO_KEYS = 'echo \'{"tests": 0.5, "style": true}\' > /logs/verifier/reward.json'


async def test_weights_hold_in_rollouts_and_in_the_check_of_a_task(tmp_path, serve, settings, spec_for):
    weighted = settings.model_copy(update={"reward": RewardRule(weights={"tests": 1.0, "style": 0.1})})
    task = write_task(tmp_path / "hello", test=TWO_KEYS)
    async with serve(SOLVE_HELLO) as proxy:
        trajectory = await run_rollout(spec_for(task), weighted, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, pytest.approx(0.6))
    assert trajectory.rewards == {"tests": 0.5, "style": 1.0}
    assert (await preflight_task(task, weighted)).reward == pytest.approx(0.6)


@pytest.mark.parametrize(("out_of_range", "reward"), [("mask", None), ("clip", 1.0)])
async def test_a_verifier_that_leaves_more_than_the_range_allows(
    tmp_path, serve, settings, spec_for, out_of_range, reward
):
    rule = RewardRule(lowest=0, highest=1, out_of_range=out_of_range)
    task = write_task(tmp_path / "hello", test="echo 85 > /logs/verifier/reward.txt")
    async with serve(SOLVE_HELLO) as proxy:
        trajectory = await run_rollout(spec_for(task), settings.model_copy(update={"reward": rule}), proxy)
    assert trajectory.reward == reward
    if reward is None:
        assert (trajectory.outcome, trajectory.blame) == (Outcome.VERIFIER_ERROR, Blame.TASK)
        assert trajectory.error == "the reward is 85, outside of the range from 0 to 1"
