"""What a run would take: rollouts and tokens from its configuration, time and usage from an earlier run's metrics.

Pure functions. Second chances, oversampling and groups that fill a step up come on top of every number here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from drydock.report.used import rollouts_in, usage_sums
from drydock.training.config import RunConfig
from drydock.training.plan import RunPlan
from drydock.training.rollout_config import SamplingConfig

NOT_PROPORTIONAL = ("storage_gib_hours",)
"""Meters that do not grow with the number of rollouts."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """evaluations: how many. sampled_tokens, trained_tokens: at most, the latter where no history branches."""

    steps: int
    evaluations: int
    train_rollouts: int
    eval_rollouts: int
    sampled_tokens: int
    trained_tokens: int

    @classmethod
    def of(cls, config: RunConfig, plan: RunPlan) -> Self:
        """Reckon up the plan."""
        generator = config.generator
        train = sum(map(len, plan.batches)) * generator.n_samples_per_prompt
        evaluations = _evaluations(config, plan.steps)
        evaluated = evaluations * len(plan.eval_tasks) * generator.eval_n_samples_per_prompt
        sampled_in_eval = _sampled_at_most(config, generator.eval_sampling_params or generator.sampling_params)
        return cls(
            steps=plan.steps,
            evaluations=evaluations,
            train_rollouts=train,
            eval_rollouts=evaluated,
            sampled_tokens=train * _sampled_at_most(config, generator.sampling_params) + evaluated * sampled_in_eval,
            trained_tokens=train * generator.max_input_length,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over an earlier run's rollouts. usage: meter to amount of one rollout, training included."""

    rollouts: int
    train_rollout_s: float
    eval_rollout_s: float
    usage: Mapping[str, float]

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> Self | None:
        """From the records of metrics.jsonl; None where no training step is among them."""
        steps = [one for one in records if "timing/step" in one and rollouts_in(one)]
        evaluations = [one for one in records if "timing/eval" in one and rollouts_in(one)]
        trained, evaluated = sum(map(rollouts_in, steps)), sum(map(rollouts_in, evaluations))
        if not trained:
            return None
        generating = _sum(steps, "timing/generate") / trained
        whole = usage_sums(records)
        return cls(
            rollouts=trained + evaluated,
            train_rollout_s=_sum(steps, "timing/step") / trained,
            eval_rollout_s=_sum(evaluations, "timing/eval") / evaluated if evaluated else generating,
            usage={
                name: amount / (trained + evaluated) for name, amount in whole.items() if name not in NOT_PROPORTIONAL
            },
        )

    def seconds_of(self, forecast: Forecast) -> float:
        """Time of all steps and evaluations; start, warm start and checkpoints are not in it."""
        return forecast.train_rollouts * self.train_rollout_s + forecast.eval_rollouts * self.eval_rollout_s

    def usage_of(self, forecast: Forecast) -> dict[str, float]:
        """What the run would use, by meter."""
        rollouts = forecast.train_rollouts + forecast.eval_rollouts
        return {name: amount * rollouts for name, amount in self.usage.items()}


def _evaluations(config: RunConfig, steps: int) -> int:
    trainer = config.trainer
    due = steps // trainer.eval_interval if trainer.eval_interval else 0
    if trainer.eval_after_train and trainer.eval_interval and steps and steps % trainer.eval_interval == 0:
        due -= 1  # the last step's is the one after training
    return due + trainer.eval_before_train + trainer.eval_after_train


def _sampled_at_most(config: RunConfig, sampling: SamplingConfig) -> int:
    """Tokens that one rollout may sample."""
    generator = config.generator
    limits = [generator.max_turns * sampling.max_generate_length, generator.max_input_length]
    return min([*limits, config.agent.max_sampled_tokens] if config.agent.max_sampled_tokens else limits)


def _sum(records: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(record.get(name) or 0.0 for record in records)
