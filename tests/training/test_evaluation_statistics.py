"""Mean reward, its interval and pass@k."""

import itertools
from math import comb, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.training.evaluation_statistics import (
    confidence_interval,
    ks_up_to,
    mean_pass_at_k,
    mean_reward,
    pass_at_k,
)

REWARDS = st.lists(st.lists(st.floats(0, 1), max_size=4), max_size=6)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_success(case: tuple[int, int, int]) -> None:
    rollouts, passed, k = case
    draws = list(itertools.combinations([True] * passed + [False] * (rollouts - passed), k))
    assert len(draws) == comb(rollouts, k)
    assert isclose(pass_at_k(rollouts, passed, k), sum(map(any, draws)) / len(draws), abs_tol=1e-12)


@pytest.mark.parametrize("k", [1, 10, 100, 198, 200])
def test_pass_at_k_is_that_of_the_papers_own_code(k: int) -> None:
    rollouts, passed = 200, 3  # arXiv 2107.03374, figure 3: 1 - prod(1 - k / arange(n - c + 1, n + 1))
    product = 1.0
    for number in range(rollouts - passed + 1, rollouts + 1):
        product *= 1 - k / number
    expected = 1.0 if rollouts - passed < k else 1 - product
    assert isclose(pass_at_k(rollouts, passed, k), expected, rel_tol=1e-12)
    assert k > 1 or isclose(pass_at_k(rollouts, passed, k), 0.015)


def test_pass_at_k_needs_k_rollouts() -> None:
    with pytest.raises(ValueError, match="pass@3 of 1 passed rollouts among 2"):
        pass_at_k(2, 1, 3)


def test_ks_are_powers_of_two_and_the_number_itself() -> None:
    assert [ks_up_to(samples) for samples in (1, 2, 5, 8)] == [[1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8]]


def test_a_task_with_too_few_graded_rollouts_takes_no_part_in_pass_at_k() -> None:
    groups = [[1.0, 0.0], [0.0], []]
    assert mean_pass_at_k(groups, 1) == (0.25, 2)
    assert mean_pass_at_k(groups, 2) == (1.0, 1)
    assert mean_pass_at_k(groups, 4) == (None, 0)


def test_without_graded_rollouts_there_is_no_mean() -> None:
    assert mean_reward([[], []]) is None
    assert mean_reward([]) is None


@given(REWARDS, st.integers(0, 3))
def test_the_interval_is_the_same_each_time_and_within_the_rewards(groups: list[list[float]], seed: int) -> None:
    found = confidence_interval(groups, resamples=50, seed=seed)
    assert found == confidence_interval(groups, resamples=50, seed=seed)
    means = [sum(group) / len(group) for group in groups if group]
    if len(means) < 2:
        assert found is None
    else:
        assert found is not None
        assert min(means) - 1e-9 <= found[0] <= found[1] <= max(means) + 1e-9


def test_the_interval_of_many_tasks_is_that_of_the_normal_approximation() -> None:
    groups = [[float(number % 2)] for number in range(400)]
    found = confidence_interval(groups)
    assert found is not None
    half = 1.96 * 0.5 / 20  # of a mean of 400 with standard deviation 0.5
    assert found == pytest.approx((0.5 - half, 0.5 + half), abs=0.005)


def test_tasks_are_drawn_not_rollouts() -> None:
    alike = [[float(number % 2)] * 10 for number in range(40)]
    once = [group[:1] for group in alike]
    assert confidence_interval(alike) == confidence_interval(once)
