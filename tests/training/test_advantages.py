"""Group advantages against values worked out by hand, and the properties that hold for any rewards."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.training.advantages import group_advantages

REWARDS = st.lists(st.none() | st.floats(-10, 10), max_size=12)


def test_mean_baseline_by_hand() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 1.0], normalize_by_std=False) == [0.5, -0.5, -0.5, 0.5]


def test_division_by_the_unbiased_std_by_hand() -> None:
    # mean 0.25, unbiased variance (0.75^2 + 3 * 0.25^2) / 3 = 0.25, std 0.5
    assert group_advantages([1.0, 0.0, 0.0, 0.0], normalize_by_std=True) == pytest.approx(
        [1.5, -0.5, -0.5, -0.5], rel=1e-5
    )


def test_a_masked_rollout_moves_no_baseline() -> None:
    assert group_advantages([1.0, None, 0.0], normalize_by_std=False) == [0.5, None, -0.5]


@pytest.mark.parametrize("rewards", [[], [None, None], [1.0], [1.0, None]])
def test_fewer_than_two_graded_rollouts_carry_no_signal(rewards: list[float | None]) -> None:
    assert group_advantages(rewards, normalize_by_std=True) == [None] * len(rewards)


@given(REWARDS, st.booleans())
def test_advantages_of_the_graded_sum_to_zero(rewards: list[float | None], normalize: bool) -> None:
    advantages = group_advantages(rewards, normalize_by_std=normalize)
    assert len(advantages) == len(rewards)
    given_ones = [advantage for advantage in advantages if advantage is not None]
    assert math.isclose(sum(given_ones), 0.0, abs_tol=1e-6 * (1 + sum(abs(a) for a in given_ones)))


@given(st.floats(-5, 5), st.integers(2, 8), st.booleans())
def test_equal_rewards_give_zero_advantage(reward: float, size: int, normalize: bool) -> None:
    advantages = group_advantages([reward] * size, normalize_by_std=normalize)
    assert all(advantage is not None and abs(advantage) < 1e-6 for advantage in advantages)
