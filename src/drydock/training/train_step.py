"""One training step: rollouts, advantages, updates, weight sync, metrics."""

import logging
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drydock.errors import JobFailed
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.advantages import group_advantages
from drydock.training.batch import policy_batch, rows_of
from drydock.training.config import RunConfig
from drydock.training.group_rollouts import Rollouts, by_task, collect_rollouts
from drydock.training.policy_job import PolicyJob
from drydock.training.task_memory import DroppedTask, TaskMemory
from drydock.training.task_set import Task

log = logging.getLogger(__name__)

LOSS_REDUCTION = {"sequence_mean": "seq-mean-token-mean", "token_mean": "token-mean"}
SIGNIFICANT_ADVANTAGE = 1e-9


@dataclass(frozen=True, slots=True)
class StepResult:
    """dropped: tasks that were found broken in this step; none of their rollouts has a reward."""

    trajectories: list[Trajectory]
    metrics: dict[str, Any]
    dropped: list[DroppedTask]


def check_version(trajectories: Sequence[Trajectory], version: int) -> None:
    """Raise JobFailed when a turn was sampled by another policy version than the step's.

    A service that reports no version (None) cannot be checked.
    """
    for trajectory in trajectories:
        for turn in trajectory.record.turns:
            if turn.policy_version not in (version, None):
                raise JobFailed(
                    f"turn {turn.index} of rollout {trajectory.rollout_id} was sampled by policy version "
                    f"{turn.policy_version}, expected {version}: is another client training this job?"
                )


def assign_advantages(trajectories: Sequence[Trajectory], config: RunConfig) -> None:
    """Set each trajectory's advantage within its group (the rollouts of one task)."""
    for group in by_task(trajectories).values():
        rewards = [trajectory.reward for trajectory in group]
        advantages = group_advantages(rewards, normalize_by_std=config.trainer.algorithm.grpo_norm_by_std)
        for trajectory, advantage in zip(group, advantages, strict=True):
            trajectory.advantage = advantage


async def update_policy(
    trajectories: Sequence[Trajectory], tasks: Sequence[Task], step: int, job: PolicyJob, config: RunConfig
) -> dict[str, float]:
    """Forward-backward and optimizer step for each mini-batch of tasks; metrics over the whole step.

    A rollout whose advantage is 0 adds nothing to the gradient: it is left out of the call and stays in the
    denominator. A mini-batch without any signal takes no optimizer step.
    """
    size = config.trainer.policy_mini_batch_size or len(tasks)
    learning_rate = scheduled_rate(config, step)
    collected: list[dict[str, float]] = []
    for start in range(0, len(tasks), size):
        names = {task.name for task in tasks[start : start + size]}
        group = [t for t in trajectories if t.task in names and t.advantage is not None]
        rows = [row for t in group if abs(t.advantage or 0.0) > SIGNIFICANT_ADVANTAGE for row in rows_of(t)]
        if not rows:
            continue
        tokens = sum(row.trained_tokens for t in group for row in rows_of(t))
        batch = policy_batch(rows, loss_fn="grpo", loss_config=loss_config(config, len(group), tokens))
        metrics = await job.forward_backward(batch)
        metrics |= await job.step(learning_rate)
        collected.append(metrics | {"trained_tokens": float(sum(row.trained_tokens for row in rows))})
    return _update_metrics(collected, learning_rate)


def loss_config(config: RunConfig, rollouts: int, tokens: int) -> dict[str, Any]:
    """The wire's configuration of the policy loss; denominators are the whole mini-batch's."""
    algorithm = config.trainer.algorithm
    return {
        "eps_clip": algorithm.eps_clip_low,
        "eps_clip_higher": algorithm.eps_clip_high,
        "importance_sampling_level": "sequence" if algorithm.policy_loss_type == "gspo" else "token",
        "loss_agg_mode": LOSS_REDUCTION[algorithm.loss_reduction],
        "global_batch_size": rollouts,
        "batch_num_tokens": tokens,
        "dp_size": 1,
    }


def scheduled_rate(config: RunConfig, step: int) -> float:
    """Linear warm-up over `num_warmup_steps`, then constant. `step` counts from 1."""
    optimizer = config.trainer.policy.optimizer_config
    return optimizer.lr * min(1.0, step / max(1, optimizer.num_warmup_steps))


async def train_step(
    tasks: Sequence[Task],
    step: int,
    job: PolicyJob,
    config: RunConfig,
    rollouts: Rollouts,
    memory: TaskMemory | None = None,
) -> StepResult:
    """Run the step and return its trajectories, advantages set, and its metrics.

    memory: what is known of the run's tasks. Default: nothing.
    """
    memory = memory or TaskMemory(config.trainer.task_strikes)
    started = time.monotonic()
    version = job.version
    collected = await collect_rollouts(tasks, step, config, rollouts, memory)
    trajectories = collected.trajectories
    check_version(trajectories, version)
    generated = time.monotonic()
    assign_advantages(trajectories, config)
    update = await update_policy(trajectories, tasks, step, job, config)
    updated = time.monotonic()
    if job.version != version:
        await job.sync()
    ended = time.monotonic()
    metrics = rollout_metrics(trajectories) | update
    metrics |= {
        "policy/version": version,
        "groups/retried": collected.groups_retried,
        "tasks/dropped": len(memory.dropped),
        "timing/generate": generated - started,
        "timing/train_critic_and_policy": updated - generated,
        "timing/sync_weights": ended - updated,
        "timing/step": ended - started,
    }
    return StepResult(trajectories, metrics, collected.dropped)


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Rewards, outcomes, lengths and token accounting of a step's rollouts."""
    rewards = [t.reward for t in trajectories if t.reward is not None]
    groups: dict[str, list[float]] = {}
    for trajectory in trajectories:
        if trajectory.reward is not None:
            groups.setdefault(trajectory.task, []).append(trajectory.reward)
    turns = [len(t.record.turns) for t in trajectories]
    sampled = [sum(len(turn.sampled_ids) for turn in t.record.turns) for t in trajectories]
    outcomes = Counter(trajectory.outcome for trajectory in trajectories)
    branches = sum(sum(t.record.branch_reasons.values()) for t in trajectories)
    metrics: dict[str, Any] = {
        "reward/avg_raw_reward": statistics.fmean(rewards) if rewards else None,
        "reward/groups_with_signal": sum(len(set(group)) > 1 for group in groups.values()) / len(groups)
        if groups
        else 0,
        "generate/avg_num_tokens": statistics.fmean(sampled) if sampled else 0,
        "generate/avg_turns": statistics.fmean(turns) if turns else 0,
        "generate/branches": branches,
        "rollouts/graded": len(rewards),
        "rollouts/masked": len(trajectories) - len(rewards),
    }
    for outcome in Outcome:
        if outcomes[outcome]:
            metrics[f"outcome/{outcome.value}"] = outcomes[outcome]
    return metrics


def _update_metrics(collected: Sequence[dict[str, float]], learning_rate: float) -> dict[str, float]:
    metrics: dict[str, float] = {"policy/policy_lr": learning_rate, "policy/updates": len(collected)}
    if not collected:
        return metrics
    averaged = {
        "policy/policy_loss": "loss",
        "policy/raw_grad_norm": "grad_norm",
        "policy/approx_kl": "approx_kl",
        "policy/importance_weight": "importance_weight",
        "policy/ppo_clip_ratio": "clip_ratio",
        "policy/policy_entropy": "entropy",
    }
    for name, source in averaged.items():
        values = [metrics_of_call[source] for metrics_of_call in collected if source in metrics_of_call]
        if values:
            metrics[name] = statistics.fmean(values)
    first = collected[0]
    metrics["mismatch/logprob_diff_mean"] = first.get("logprob_diff_mean", float("nan"))
    metrics["mismatch/logprob_diff_max"] = first.get("logprob_diff_max", float("nan"))
    metrics["generate/trained_tokens"] = sum(call["trained_tokens"] for call in collected)
    return metrics
