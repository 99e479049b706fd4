"""One training step: retries, advantages within groups, what is sent to the service and what is counted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from builders.trajectories import sample, trajectory

from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.config import RunConfig
from drydock.training.config_file import load_run_config
from drydock.training.policy_job import PolicyJob
from drydock.training.policy_versions import PolicyVersions
from drydock.training.step_rollouts import StepRollouts
from drydock.training.task_set import Task
from drydock.training.train_step import (
    assign_advantages,
    rollout_metrics,
    scheduled_rate,
    train_step,
    update_policy,
)

A, B = Task("a", Path("a")), Task("b", Path("b"))


class RecordingJob:
    """A policy job that keeps what it is told, in order; `version` counts its optimizer steps."""

    def __init__(self) -> None:
        self.version = 7
        self.calls: list[tuple[str, Any]] = []

    async def forward_backward(self, batch: dict[str, Any]) -> dict[str, float]:
        self.calls.append(("forward_backward", batch))
        return {"loss": 0.5, "logprob_diff_mean": 1e-6, "logprob_diff_max": 2e-6}

    async def logprobs(self, batch: dict[str, Any]) -> np.ndarray:
        self.calls.append(("logprobs", batch))
        return np.full(batch["kwargs"]["input_ids"].shape, -2.0, np.float32)

    async def step(self, learning_rate: float) -> dict[str, float]:
        self.calls.append(("step", learning_rate))
        self.version += 1
        return {"grad_norm": 3.0}

    async def sync(self) -> None:
        self.calls.append(("sync", self.version))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    @property
    def batches(self) -> list[dict[str, Any]]:
        return [value for name, value in self.calls if name == "forward_backward"]


@pytest.fixture
def job() -> RecordingJob:
    return RecordingJob()


def as_job(job: RecordingJob) -> PolicyJob:
    return cast("PolicyJob", job)


def config(*overrides: str) -> RunConfig:
    return load_run_config(None, ["data.train=t", "trainer.policy.model.path=some/model", *overrides])


def group(task: str, rewards: Sequence[float | None]) -> list[Trajectory]:
    outcomes = [Outcome.SANDBOX_ERROR if reward is None else Outcome.GRADED for reward in rewards]
    return [
        trajectory(task, reward, repetition=index, outcome=outcome)
        for index, (reward, outcome) in enumerate(zip(rewards, outcomes, strict=True))
    ]


def test_advantages_are_relative_to_the_rollouts_own_group() -> None:
    mixed = [*group("a", [1.0, 0.0]), *group("b", [1.0, None, 1.0]), *group("c", [None, 1.0])]
    assign_advantages(mixed, config())
    assert [one.advantage for one in mixed] == [0.5, -0.5, 0.0, None, 0.0, None, None]


async def test_only_rows_that_move_the_policy_are_sent_and_all_are_in_the_denominators(job: RecordingJob) -> None:
    cut_in_two = [sample([0, 1, 1, 1]), sample([0, 0, 1])]
    winners = [trajectory("a", 1.0, cut_in_two, repetition=0), *group("a", [0.0])]
    everything = [*winners, *group("b", [1.0, 1.0, None])]
    assign_advantages(everything, config())
    metrics = await update_policy(everything, [A, B], 1, as_job(job), config())
    [batch] = job.batches
    # three rows of the two rollouts of a; b's group has no signal, its masked rollout has no part at all
    assert batch["context"]["sequence_loss_weights"].tolist() == [0.75, 0.25, 1.0]
    assert batch["context"]["advantages"].max() == 0.5
    loss = batch["processing"]["config"]
    assert loss["global_batch_size"] == 4
    assert loss["batch_num_tokens"] == 4 + 2 + 2 + 2
    assert metrics["generate/trained_tokens"] == 6
    assert metrics["policy/updates"] == 1
    assert metrics["policy/raw_grad_norm"] == 3.0
    assert metrics["mismatch/logprob_diff_max"] == 2e-6


async def test_each_mini_batch_of_tasks_is_an_update_of_its_own(job: RecordingJob) -> None:
    everything = [*group("a", [1.0, 0.0]), *group("b", [0.0, 1.0])]
    assign_advantages(everything, config())
    run = config("trainer.train_batch_size=2", "trainer.policy_mini_batch_size=1")
    metrics = await update_policy(everything, [A, B], 1, as_job(job), run)
    assert job.names == ["forward_backward", "step", "forward_backward", "step"]
    assert [batch["processing"]["config"]["global_batch_size"] for batch in job.batches] == [2, 2]
    assert metrics["policy/updates"] == 2


async def test_a_step_trains_and_hands_the_weights_over(job: RecordingJob) -> None:
    found = StepRollouts([A, B], [*group("a", [1.0, 0.0]), *group("b", [0.0, None])])
    metrics = await train_step(found, 3, as_job(job), config(), PolicyVersions.at(2, 7))
    assert job.names == ["forward_backward", "step", "sync"]
    assert job.calls[-1] == ("sync", 8)
    assert metrics["policy/version"] == 7
    assert metrics["reward/avg_raw_reward"] == pytest.approx(1 / 3)
    assert metrics["reward/groups_with_signal"] == 0.5
    assert (metrics["rollouts/graded"], metrics["rollouts/masked"]) == (3, 1)
    assert (metrics["outcome/graded"], metrics["outcome/sandbox_error"]) == (3, 1)
    assert metrics["timing/train_critic_and_policy"] >= 0
    assert (metrics["staleness/mean"], metrics["staleness/max"]) == (0, 0)


async def test_a_step_without_signal_changes_nothing(job: RecordingJob) -> None:
    found = StepRollouts([A], group("a", [1.0, 1.0, None]))
    metrics = await train_step(found, 1, as_job(job), config(), PolicyVersions.at(0, 7))
    assert job.calls == []
    assert metrics["policy/updates"] == 0
    assert metrics["reward/avg_raw_reward"] == 1.0


async def test_stale_rollouts_are_corrected_with_log_probs_of_before_the_first_update(job: RecordingJob) -> None:
    everything = [*group("a", [1.0, 0.0]), *group("b", [0.0, 1.0])]
    assign_advantages(everything, config())
    run = config("trainer.train_batch_size=2", "trainer.policy_mini_batch_size=1", "trainer.max_staleness_steps=2")
    await update_policy(everything, [A, B], 1, as_job(job), run)
    assert job.names == ["logprobs", "logprobs", "forward_backward", "step", "forward_backward", "step"]
    for batch in job.batches:
        assert (batch["context"]["prox_logp_shifted"] == -2.0).all()
        loss = batch["processing"]["config"]
        assert loss["use_decoupled_loss"] is True
        assert loss["off_policy_correction"] == {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}


@pytest.mark.parametrize(
    ("overrides", "corrected"),
    [
        (["trainer.max_staleness_steps=1"], True),
        (["trainer.max_staleness_steps=1", "trainer.algorithm.off_policy_correction=none"], False),
        (["trainer.algorithm.off_policy_correction=icepop"], True),
        ([], False),
    ],
)
async def test_correction_is_on_by_default_exactly_where_rollouts_may_be_stale(
    job: RecordingJob, overrides: list[str], corrected: bool
) -> None:
    everything = group("a", [1.0, 0.0])
    assign_advantages(everything, config())
    await update_policy(everything, [A], 1, as_job(job), config(*overrides))
    assert ("off_policy_correction" in job.batches[0]["processing"]["config"]) is corrected
    assert ("prox_logp_shifted" in job.batches[0]["context"]) is corrected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), {"importance_sampling_level": "sequence", "eps_clip": 3e-4, "eps_clip_higher": 4e-4}),
        (
            (
                "trainer.algorithm.policy_loss_type=grpo",
                "trainer.algorithm.eps_clip_low=0.2",
                "trainer.algorithm.loss_reduction=token_mean",
            ),
            {"importance_sampling_level": "token", "eps_clip": 0.2, "loss_agg_mode": "token-mean"},
        ),
    ],
)
async def test_the_configured_loss_is_asked_for(
    job: RecordingJob, overrides: tuple[str, ...], expected: dict[str, Any]
) -> None:
    everything = group("a", [1.0, 0.0])
    assign_advantages(everything, config())
    await update_policy(everything, [A], 1, as_job(job), config(*overrides))
    asked = job.batches[0]["processing"]["config"]
    assert {key: asked[key] for key in expected} == expected


def test_the_learning_rate_rises_linearly_and_stays() -> None:
    run = config("trainer.policy.optimizer_config.lr=4e-4", "trainer.policy.optimizer_config.num_warmup_steps=4")
    assert [scheduled_rate(run, step) for step in (1, 2, 4, 9)] == pytest.approx([1e-4, 2e-4, 4e-4, 4e-4])
    assert scheduled_rate(config("trainer.policy.optimizer_config.lr=4e-4"), 1) == 4e-4


def test_metrics_of_a_step_without_any_graded_rollout_have_no_reward() -> None:
    metrics = rollout_metrics(group("a", [None, None]))
    assert metrics["reward/avg_raw_reward"] is None
    assert (metrics["rollouts/graded"], metrics["rollouts/masked"]) == (0, 2)
