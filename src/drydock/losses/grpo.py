"""The policy-gradient loss of the wire: GRPO and PPO, GSPO, CISPO, SAPO, M2PO, decoupled PPO, by configuration.

    loss_it = surrogate(r_it, A_it) * w_it * c_it

r is the ratio to the proximal policy, on the level of tokens or sequences (`drydock.losses.ratio`); the surrogate is
the clipped one (`clipping`), CISPO's (`cispo`) or SAPO's (`sapo`). w is the behaviour weight exp(prox - old), or the
truncated one where `off_policy_correction.tis_ratio_type` asks for it. c collects what else weighs or drops a token:
`context.rollout_is_weights`, the correction's masks (`off_policy`), M2PO's choice (`m2po`). KL, entropy and
aggregation: `policy`. Presets (DAPO, Dr.GRPO, GSPO, ...) are in docs/losses.md.
"""

import torch
from torch import Tensor

from drydock.losses.base import Denominators, LossInputs, LossOutput, need, need_binary
from drydock.losses.cispo import cispo_terms
from drydock.losses.clipping import clipped_terms
from drydock.losses.grpo_config import GrpoConfig
from drydock.losses.m2po import m2_keep
from drydock.losses.off_policy import correct
from drydock.losses.policy import policy_output
from drydock.losses.ratio import behaviour, exp_clamped, loglinear_prox, proximal, row_mean
from drydock.losses.sapo import sapo_terms


def grpo_loss(inputs: LossInputs, config: GrpoConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch; see the module for the formula. With `m2_threshold`, `inputs` must be the whole call.

    Metrics beside those of `policy_output`: `behav_imp_weight` (mean of w) and `sampler_trainer_kl` (mean of
    w - 1 - log w before any cap, an estimate of KL(sampler || trainer)) where proximal log-probs are there,
    `behav_capped`, `m2_dropped`, `staleness` and `staleness_max` (current_version - versions),
    `prox_loglinear_diff` (mean |loglinear - prox|, method metrics), and those of `off_policy.correct`.

    Raises UserError when advantages are missing or the mask is not binary.
    """
    mask = need_binary(inputs.loss_mask, "grpo")
    trained = mask != 0
    old = behaviour(inputs)
    prox = proximal(inputs, config.prox_logp_method, config.current_version)
    difference = torch.where(trained, inputs.logprobs - prox, 0.0)
    advantages = torch.where(trained, need(inputs.advantages, "advantages", "grpo"), 0.0)
    log_ratio = difference
    if config.importance_sampling_level == "sequence":
        log_ratio, advantages = row_mean(difference, mask), row_mean(advantages, mask)
    elif config.importance_sampling_level == "sequence_token":
        log_ratio = row_mean(difference, mask).detach() + difference - difference.detach()
    ratio = exp_clamped(log_ratio)
    terms, clipped = _surrogate(inputs.logprobs, ratio, advantages, config)

    gap = torch.where(trained, (prox - old).detach(), 0.0)
    uncapped, cap = exp_clamped(gap), config.behav_imp_weight_cap
    weight = uncapped if cap is None else torch.where(uncapped <= cap, uncapped, 0.0)
    means, maxima = _version_metrics(inputs, prox, config)
    minima: dict[str, Tensor] = {}
    if inputs.prox_logprobs is not None or config.prox_logp_method == "loglinear":
        means["behav_imp_weight"] = (mask * weight).sum()
        means["sampler_trainer_kl"] = (mask * (uncapped - 1.0 - gap)).sum()
        if cap is not None:
            means["behav_capped"] = (mask * (uncapped > cap)).sum()
    if config.off_policy_correction is not None:
        bypass = inputs.prox_logprobs is None and config.prox_logp_method != "loglinear"
        trainer = inputs.logprobs.detach() if bypass else prox
        fix = correct(trainer, old, inputs.logprobs.detach(), advantages, mask, config.off_policy_correction)
        weight = weight * fix.keep if config.off_policy_correction.tis_ratio_type is None else fix.weight
        means |= fix.means
        maxima |= fix.maxima
        minima = fix.minima
    if inputs.is_weights is not None:
        weight = weight * inputs.is_weights
    if config.m2_threshold is not None:
        keep = m2_keep(gap, mask, config.m2_threshold)
        weight = weight * keep
        means["m2_dropped"] = (mask * (1.0 - keep)).sum()
    return policy_output(
        terms * weight,
        inputs,
        config,
        denominators,
        difference=difference,
        ratio=ratio,
        clipped=clipped,
        means=means,
        maxima=maxima,
        minima=minima,
    )


def couples_rows(config: GrpoConfig) -> bool:
    """Whether a row's loss depends on other rows: M2PO's threshold is over all tokens of the call."""
    return config.m2_threshold is not None


def _surrogate(logprobs: Tensor, ratio: Tensor, advantages: Tensor, config: GrpoConfig) -> tuple[Tensor, Tensor]:
    """Per-token terms, and where a clip binds."""
    lower, upper = config.eps_clip, config.eps_clip if config.eps_clip_higher is None else config.eps_clip_higher
    if config.use_cispo_loss:
        terms, weight = cispo_terms(
            logprobs, ratio, advantages, lower=lower, upper=upper, weight_max=config.is_weight_clip_max
        )
        return terms, weight != ratio
    if config.use_sapo_loss:
        terms = sapo_terms(ratio, advantages, tau_pos=config.sapo_tau_pos, tau_neg=config.sapo_tau_neg)
        return terms, torch.zeros_like(ratio, dtype=torch.bool)
    terms = clipped_terms(ratio, advantages, lower=lower, upper=upper, c_clip=config.c_clip)
    return terms, terms != -advantages * ratio


@torch.no_grad()
def _version_metrics(
    inputs: LossInputs, prox: Tensor, config: GrpoConfig
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Further means and maxima."""
    means: dict[str, Tensor] = {}
    maxima: dict[str, Tensor] = {}
    if inputs.versions is not None and config.current_version is not None:
        trained = inputs.loss_mask != 0
        staleness = config.current_version - inputs.versions
        means["staleness"] = (inputs.loss_mask * staleness).sum()
        if bool(trained.any()):
            maxima["staleness_max"] = staleness[trained].max()
        if config.prox_logp_method == "metrics":
            gap = loglinear_prox(inputs, config.current_version) - prox
            means["prox_loglinear_diff"] = (inputs.loss_mask * gap.abs()).sum()
    return means, maxima
