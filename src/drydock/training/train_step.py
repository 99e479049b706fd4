"""One training step on rollouts that are there: advantages, updates, weight sync, metrics."""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.advantages import group_advantages
from drydock.training.batch import policy_batch, rows_of
from drydock.training.config import RunConfig
from drydock.training.group_rollouts import by_task
from drydock.training.off_policy import correction_block
from drydock.training.policy_job import PolicyJob
from drydock.training.policy_versions import PolicyVersions
from drydock.training.step_rollouts import StepRollouts
from drydock.training.task_set import Task

LOSS_REDUCTION = {"sequence_mean": "seq-mean-token-mean", "token_mean": "token-mean"}
SIGNIFICANT_ADVANTAGE = 1e-9


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
    """Forward-backward and optimizer step for each mini-batch of `tasks`; metrics over the whole step.

    A rollout whose advantage is 0 adds nothing to the gradient: it is left out of the call and stays in the
    denominator. A mini-batch without any signal takes no optimizer step. Where stale rollouts are corrected for, the
    trainer's log-probs are taken before the first update.
    """
    size = config.trainer.policy_mini_batch_size or max(1, len(tasks))
    learning_rate = scheduled_rate(config, step)
    batches: list[tuple[dict[str, Any], int]] = []
    for start in range(0, len(tasks), size):
        names = {task.name for task in tasks[start : start + size]}
        group = [t for t in trajectories if t.task in names and t.advantage is not None]
        rows = [row for t in group if abs(t.advantage or 0.0) > SIGNIFICANT_ADVANTAGE for row in rows_of(t)]
        if not rows:
            continue
        tokens = sum(row.trained_tokens for t in group for row in rows_of(t))
        batch = policy_batch(rows, loss_fn="grpo", loss_config=loss_config(config, len(group), tokens))
        batches.append((batch, sum(row.trained_tokens for row in rows)))
    gaps: list[np.ndarray] = []
    if _correction(config) is not None:
        for batch, _ in batches:
            context = batch["context"]
            context["prox_logp_shifted"] = await job.logprobs(batch)
            gaps.append(
                np.abs(context["prox_logp_shifted"] - context["old_log_probs_shifted"])[context["loss_mask"] > 0]
            )
    collected: list[dict[str, float]] = []
    for batch, trained_tokens in batches:
        metrics = await job.forward_backward(batch)
        metrics |= await job.step(learning_rate)
        collected.append(metrics | {"trained_tokens": float(trained_tokens)})
    metrics = _update_metrics(collected, learning_rate)
    if gaps:  # the loss then measures against the trainer's own log-probs
        metrics["mismatch/logprob_diff_mean"] = float(np.concatenate(gaps).mean())
        metrics["mismatch/logprob_diff_max"] = float(np.concatenate(gaps).max())
    return metrics


def loss_config(config: RunConfig, rollouts: int, tokens: int) -> dict[str, Any]:
    """The wire's configuration of the policy loss; denominators are the whole mini-batch's."""
    algorithm = config.trainer.algorithm
    correction = _correction(config)
    corrected = {} if correction is None else {"use_decoupled_loss": True, "off_policy_correction": correction}
    return {
        **corrected,
        "eps_clip": algorithm.eps_clip_low,
        "eps_clip_higher": algorithm.eps_clip_high,
        "importance_sampling_level": "sequence" if algorithm.policy_loss_type == "gspo" else "token",
        "loss_agg_mode": LOSS_REDUCTION[algorithm.loss_reduction],
        "global_batch_size": rollouts,
        "batch_num_tokens": tokens,
        "dp_size": 1,
    }


def _correction(config: RunConfig) -> dict[str, Any] | None:
    return correction_block(config.trainer.algorithm.off_policy_correction, config.trainer.max_staleness_steps)


def scheduled_rate(config: RunConfig, step: int) -> float:
    """Linear warm-up over `num_warmup_steps`, then constant. `step` counts from 1."""
    optimizer = config.trainer.policy.optimizer_config
    return optimizer.lr * min(1.0, step / max(1, optimizer.num_warmup_steps))


async def train_step(
    found: StepRollouts, step: int, job: PolicyJob, config: RunConfig, versions: PolicyVersions
) -> dict[str, Any]:
    """Train on the rollouts of `step`, set their advantages, hand the weights over; metrics of rollouts and update."""
    started = time.monotonic()
    version = job.version
    stale = versions.staleness(found.trajectories, step)
    assign_advantages(found.trajectories, config)
    update = await update_policy(found.trajectories, found.tasks, step, job, config)
    updated = time.monotonic()
    if job.version != version:
        await job.sync()
    versions.reached(step, job.version)
    ended = time.monotonic()
    return (
        rollout_metrics(found.trajectories)
        | update
        | {
            "policy/version": version,
            "staleness/mean": statistics.fmean(stale) if stale else 0.0,
            "staleness/max": max(stale, default=0),
            "groups/retried": found.groups_retried,
            "groups/filtered": len(found.filtered),
            "groups/cut": len(found.cut),
            "rollouts/replaced": found.replaced,
            "timing/train_critic_and_policy": updated - started,
            "timing/sync_weights": ended - updated,
        }
    )


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
        "policy/off_policy_weight": "behav_imp_weight",
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
