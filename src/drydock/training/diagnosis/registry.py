"""Every check by its name: the key in the section `diagnosis`, in metrics.jsonl and in diagnosis.jsonl."""

from drydock.training.diagnosis.base import Check
from drydock.training.diagnosis.clip_fraction import clip_fraction
from drydock.training.diagnosis.constant_reward import constant_reward
from drydock.training.diagnosis.entropy_collapse import entropy_collapse
from drydock.training.diagnosis.gradient import gradient
from drydock.training.diagnosis.mismatch import mismatch
from drydock.training.diagnosis.no_call_captured import no_call_captured
from drydock.training.diagnosis.no_signal import no_signal
from drydock.training.diagnosis.no_trainable_tokens import no_trainable_tokens
from drydock.training.diagnosis.policy_version import policy_version
from drydock.training.diagnosis.reward_jump import reward_jump
from drydock.training.diagnosis.task_errors import task_errors
from drydock.training.diagnosis.truncated import truncated
from drydock.training.diagnosis.verifier_failing import verifier_failing

CHECKS: dict[str, Check] = {
    "gradient": gradient,
    "policy_version": policy_version,
    "no_trainable_tokens": no_trainable_tokens,
    "no_call_captured": no_call_captured,
    "mismatch": mismatch,
    "verifier_failing": verifier_failing,
    "task_errors": task_errors,
    "constant_reward": constant_reward,
    "no_signal": no_signal,
    "truncated": truncated,
    "reward_jump": reward_jump,
    "entropy_collapse": entropy_collapse,
    "clip_fraction": clip_fraction,
}
"""In the order in which findings of one step are told: what explains others comes first."""
