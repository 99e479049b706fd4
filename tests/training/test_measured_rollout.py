"""What a run would take by a single rollout: arithmetic of the estimate."""

from dataclasses import replace

import pytest

from drydock.training.config_file import load_run_config
from drydock.training.forecast import Forecast
from drydock.training.measured_rollout import MeasuredRollout

PLAN = Forecast(steps=10, evaluations=2, train_rollouts=640, eval_rollouts=40, sampled_tokens=0, trained_tokens=0)
ONE = MeasuredRollout(
    rollout_s=20.0,
    train_s=0.5,
    update_s=3.0,
    per_second={"gpu_seconds": 8.0},
    per_rollout={"sampled_tokens": 100.0, "trained_tokens": 90.0},
    prices={"gpu_seconds": 0.5, "sampled_tokens": 0.01},
)


def config(*overrides: str):
    words = ["data.train=t", "trainer.policy.model.path=m", "generator.num_parallel_generation_workers=32"]
    return load_run_config(None, [*words, *overrides])


def test_rollouts_take_turns_at_the_workers_and_training_comes_on_top() -> None:
    a_step = 2 * 20 + 64 * 0.5 + 3
    assert ONE.seconds_of(PLAN, config()) == 10 * a_step + 2 * 20
    halves = config("trainer.policy_mini_batch_size=4")
    assert ONE.seconds_of(PLAN, halves) == 10 * (a_step + 3) + 2 * 20


def test_of_an_asynchronous_run_the_slower_half_counts() -> None:
    stale = config("trainer.max_staleness_steps=2")
    assert ONE.seconds_of(PLAN, stale) == 10 * 40 + 2 * 20
    assert replace(ONE, rollout_s=1.0).seconds_of(PLAN, stale) == 10 * 35 + 2 * 1


def test_time_and_rollouts_make_the_usage_and_the_prices_the_cost() -> None:
    seconds = ONE.seconds_of(PLAN, config())
    assert ONE.usage_of(PLAN, config()) == {
        "gpu_seconds": 8 * seconds,
        "sampled_tokens": 680 * 100,
        "trained_tokens": 640 * 90,
        "cost": pytest.approx(8 * seconds * 0.5 + 68_000 * 0.01),
    }
    assert "cost" not in replace(ONE, prices={}).usage_of(PLAN, config())


def test_a_run_without_steps_takes_no_time() -> None:
    assert ONE.seconds_of(Forecast(0, 0, 0, 0, 0, 0), config()) == 0
