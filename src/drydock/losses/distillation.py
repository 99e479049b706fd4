"""On-policy distillation: the student learns from a teacher's log-probs of what the student sampled.

reverse (default): the per-token reverse KL, as a policy gradient with the teacher's verdict as the advantage
(arXiv 2306.13649, reverse KL; thinkingmachines.ai/blog/on-policy-distillation):

    loss_it = -sg(r) (teacher - sg(lp)) lp,    r = exp(lp - old), or 1 without old log-probs
    max_ratio: r is capped

Its expected gradient under the student's samples is that of KL(student || teacher) of the next token.

forward_topk: the forward KL over the teacher's k likeliest tokens, and one bucket for all others:

    loss_it = sum_k q_k (log q_k - lp_k) + q_rest (log q_rest - log p_rest)

q are the teacher's probabilities (`context.teacher_topk_log_probs_shifted`, of `teacher_topk_ids_shifted`), q_rest =
1 - sum_k q_k, p likewise. The KL of the coarser distribution: never negative, 0 iff the student agrees on all k.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from drydock.errors import UserError
from drydock.losses.base import Denominators, LossInputs, LossOutput, Sent, need, need_binary
from drydock.losses.policy import PolicyConfig, check_policy, policy_output
from drydock.losses.ratio import behaviour, exp_clamped

SMALLEST_REST = 1e-6


class DistillationConfig(PolicyConfig):
    """Settings of the `distillation` loss."""

    direction: Literal["reverse", "forward_topk"] = "reverse"
    """Which KL; see the module."""
    max_ratio: float | None = Field(default=None, gt=0.0)
    """Cap of the importance weight exp(lp - old) of the reverse KL."""

    @model_validator(mode="after")
    def _cap_has_its_direction(self) -> "DistillationConfig":
        if self.max_ratio is not None and self.direction != "reverse":
            raise ValueError("max_ratio has no effect with direction 'forward_topk', which weighs no ratio")
        return self


def check_distillation(config: DistillationConfig, sent: Sent) -> None:
    """Raises UserError for missing teacher log-probs, or ones that are no probabilities."""
    check_policy(config, sent)
    if config.direction == "reverse":
        if "teacher_log_probs_shifted" not in sent:
            raise UserError("distillation needs context.teacher_log_probs_shifted, the teacher's log-probs [B, T]")
        if config.max_ratio is not None and "old_log_probs_shifted" not in sent:
            raise UserError("max_ratio needs context.old_log_probs_shifted; without it the ratio is 1")
        return
    for name in ("teacher_topk_ids_shifted", "teacher_topk_log_probs_shifted"):
        if name not in sent:
            raise UserError(f"distillation with direction 'forward_topk' needs context.{name} [B, T, k]")
    trained = sent["loss_mask"] != 0
    mass = np.exp(sent["teacher_topk_log_probs_shifted"]).sum(axis=-1)
    if (mass[trained] > 1.0 + 1e-3).any():
        raise UserError("context.teacher_topk_log_probs_shifted sums to more than probability 1; send natural logs")
    ids = np.sort(sent["teacher_topk_ids_shifted"], axis=-1)
    if (ids[..., 1:] == ids[..., :-1])[trained].any():
        raise UserError("context.teacher_topk_ids_shifted names a token twice at one position")


def distillation_loss(inputs: LossInputs, config: DistillationConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch. Metrics: `teacher_kl`, mean of lp - teacher (reverse) or of the loss (forward)."""
    mask = need_binary(inputs.loss_mask, "distillation")
    trained = mask != 0
    difference = torch.where(trained, inputs.logprobs - behaviour(inputs), 0.0)
    ratio = exp_clamped(difference.detach())
    if config.direction == "reverse":
        teacher = need(inputs.teacher_logprobs, "teacher_log_probs_shifted", "distillation")
        verdict = torch.where(trained, teacher - inputs.logprobs.detach(), 0.0)
        weight = ratio if config.max_ratio is None else ratio.clamp(max=config.max_ratio)
        terms, clipped, kl = -weight * verdict * inputs.logprobs, weight != ratio, -verdict
    else:
        terms = torch.where(trained, _forward_kl(inputs), 0.0)
        clipped, kl = torch.zeros_like(trained), terms
    return policy_output(
        terms,
        inputs,
        config,
        denominators,
        difference=difference,
        ratio=ratio,
        clipped=clipped,
        means={"teacher_kl": (mask * kl.detach()).sum()},
    )


def _forward_kl(inputs: LossInputs) -> Tensor:
    name = "teacher_topk_log_probs_shifted"
    teacher = need(inputs.teacher_candidate_logprobs, name, "distillation")
    student = need(inputs.candidate_logprobs, "teacher_topk_ids_shifted", "distillation")
    probabilities = teacher.exp()
    known = (probabilities * (teacher - student)).sum(dim=-1)
    teacher_rest, student_rest = _rest(teacher), _rest(student)
    rest = teacher_rest * (teacher_rest.log() - student_rest.log())
    return known + torch.where(teacher_rest > SMALLEST_REST, rest, 0.0)


def _rest(candidates: Tensor) -> Tensor:
    """Probability of all tokens beside the candidates, at least `SMALLEST_REST`."""
    return (1.0 - candidates.exp().sum(dim=-1)).clamp(min=SMALLEST_REST)
