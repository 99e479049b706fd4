"""The section `diagnosis` of a run's configuration: what each check of a step does, and from when on."""

from typing import Literal

from pydantic import Field

from drydock.training.section import Section

Level = Literal["off", "warn", "stop"]
"""off: the check is not made. warn: it is said and the run goes on. stop: the run ends after the step."""


class DiagnosisConfig(Section):
    no_signal: Level = "warn"
    """In the last groups all rewards were equal, group by group: nothing was trained."""

    no_signal_groups: int = Field(default=32, gt=0)
    """So many groups in a row without signal, in whole steps."""

    truncated: Level = "warn"
    """Rollouts ended because turns, context or a turn's tokens were used up."""

    truncated_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the step's rollouts from which on; rollouts in which something broke are not counted."""

    no_trainable_tokens: Level = "stop"
    """There are graded rollouts, and not one of them holds a token that the policy sampled."""

    no_call_captured: Level = "warn"
    """A rollout was graded although no call of its agent reached the chat proxy."""

    policy_version: Level = "stop"
    """A turn was sampled by a newer policy than the trainer's, or by an older one than is allowed."""

    mismatch: Level = "warn"
    """Trainer and sampler disagree about the probability of the same tokens."""

    mismatch_logprob_diff: float = Field(default=0.05, gt=0)
    """Mean absolute difference of their log-probs in the step's first update, in nats."""

    mismatch_logprob_diff_stale: float = Field(default=0.3, gt=0)
    """The same where rollouts may be stale, so that the policy has moved on since."""

    entropy_collapse: Level = "warn"
    """The policy has become nearly deterministic, so that it explores no more."""

    entropy_collapse_share: float = Field(default=0.1, gt=0, lt=1)
    """Entropy as a share of that of the run's first updates, below which it has collapsed."""

    entropy_collapse_floor: float = Field(default=0.005, ge=0)
    """Entropy in nats a token, below which it has collapsed wherever it began; 0: no floor."""

    entropy_collapse_baseline: int = Field(default=5, gt=0)
    """Training steps with an update at the run's beginning, whose mean entropy is compared with."""

    entropy_collapse_steps: int = Field(default=3, gt=0)
    """Last steps with an update, whose mean entropy is looked at."""

    reward_jump: Level = "warn"
    """The mean reward of a step is far from that of the steps before it."""

    reward_jump_steps: int = Field(default=8, ge=2)
    """Steps before it that it is compared with; nothing is said until there are so many."""

    reward_jump_share: float = Field(default=0.4, gt=0)
    """Least jump, as a share of the range of all rewards of these steps."""

    reward_jump_sigmas: float = Field(default=6.0, gt=0)
    """Least jump in standard deviations of a step's mean reward."""

    clip_fraction: Level = "warn"
    """The clip takes the gradient from most of the trained tokens."""

    clip_fraction_share: float = Field(default=0.5, gt=0, le=1)
    """Share of trained tokens from which on."""

    clip_fraction_steps: int = Field(default=3, gt=0)
    """In so many steps with an update in a row."""

    gradient: Level = "stop"
    """The loss or the gradient is NaN or infinite."""

    verifier_failing: Level = "warn"
    """The verifier left no valid reward."""

    verifier_failing_share: float = Field(default=0.5, gt=0, le=1)
    """Share of the step's verified rollouts from which on."""

    constant_reward: Level = "warn"
    """The verifier gives the same reward to every rollout of every task."""

    constant_reward_steps: int = Field(default=5, gt=0)
    """In so many steps in a row."""

    constant_reward_tasks: int = Field(default=8, gt=1)
    """To at least so many different tasks."""

    task_errors: Level = "warn"
    """Most rollouts that broke are of one task."""

    task_errors_share: float = Field(default=0.5, gt=0, le=1)
    """Share of the broken rollouts from which on."""

    task_errors_least: int = Field(default=4, gt=0)
    """Broken rollouts of that task from which on."""

    task_errors_steps: int = Field(default=10, gt=0)
    """Last steps that are looked at."""
