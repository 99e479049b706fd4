"""What policy-gradient losses share: per-token terms are aggregated, KL and entropy terms added, metrics counted.

loss = aggregate(terms) + kl_loss_coef aggregate(kl) - entropy_coeff aggregate(H)
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from drydock.errors import UserError
from drydock.losses.aggregation import AggregationConfig, aggregate, check_aggregation
from drydock.losses.base import Denominators, LossInputs, LossOutput, Sent, need
from drydock.losses.entropy import EntropyConfig
from drydock.losses.kl import KlConfig, check_kl, kl_terms
from drydock.losses.ratio import behaviour, exp_clamped


class PolicyConfig(AggregationConfig, KlConfig, EntropyConfig):
    """Keys of every policy-gradient loss."""


def check_policy(config: PolicyConfig, sent: Sent) -> None:
    """Raises UserError for options whose context tensors (`sent`, wire names) are missing."""
    check_aggregation(config, sent)
    check_kl(config, sent)
    if config.kl_importance_weighted and "old_log_probs_shifted" not in sent:
        raise UserError("kl_importance_weighted needs context.old_log_probs_shifted")


def needs_entropy(config: EntropyConfig) -> bool:
    """Whether the exact entropy has to be computed."""
    return config.entropy_coeff != 0.0


def policy_output(
    terms: Tensor,
    inputs: LossInputs,
    config: PolicyConfig,
    denominators: Denominators,
    *,
    difference: Tensor,
    ratio: Tensor,
    clipped: Tensor,
    means: Mapping[str, Tensor] | None = None,
    maxima: Mapping[str, Tensor] | None = None,
    minima: Mapping[str, Tensor] | None = None,
) -> LossOutput:
    """The loss from its per-token policy terms, with the metrics of every policy loss.

    difference: lp - the log-probs that the ratio is against. ratio: importance ratio. clipped: where a clip binds.
    means, maxima, minima: further metrics. All per token, finite everywhere.

    Metrics: `approx_kl` mean difference (positive when the policy became more certain of the sampled tokens),
    `importance_weight` mean ratio, `clip_ratio`, `entropy` mean of -lp, `exact_entropy` where computed,
    `logprob_diff_mean` and `logprob_diff_max` of |difference|, `ref_kl` where reference log-probs were sent; and the
    loss's parts `loss_term_kl`, `loss_term_entropy` where they are not 0 by configuration.
    """
    mask = inputs.loss_mask
    trained = mask != 0

    def whole(values: Tensor) -> Tensor:
        return aggregate(values, inputs, config.loss_agg_mode, denominators, loss_scale_factor=config.loss_scale_factor)

    loss = whole(terms)
    sums: dict[str, Tensor] = {}
    counted = {
        "approx_kl": difference,
        "importance_weight": ratio,
        "clip_ratio": clipped,
        "entropy": -inputs.logprobs,
        "logprob_diff_mean": difference.abs(),
    }
    if inputs.ref_logprobs is not None or config.use_kl_loss:
        reference = need(inputs.ref_logprobs, "ref_log_probs_shifted", "use_kl_loss")
        kl = kl_terms(inputs.logprobs, torch.where(trained, reference, 0.0), config.kl_loss_type)
        counted["ref_kl"] = kl
        if config.use_kl_loss:
            if config.kl_importance_weighted:
                kl = kl * exp_clamped(torch.where(trained, inputs.logprobs - behaviour(inputs), 0.0))
            part = config.kl_loss_coef * whole(kl)
            loss = loss + part
            sums["loss_term_kl"] = part.detach()
    if inputs.entropy is not None:
        counted["exact_entropy"] = inputs.entropy
    if needs_entropy(config):
        if inputs.entropy is None:
            raise UserError("entropy_coeff needs the exact entropy, which was not computed for this call")
        part = -config.entropy_coeff * whole(inputs.entropy)
        loss = loss + part
        sums["loss_term_entropy"] = part.detach()
    with torch.no_grad():
        return LossOutput(
            loss=loss,
            means={name: (mask * values.detach()).sum() for name, values in counted.items()} | dict(means or {}),
            maxima={"logprob_diff_max": _peak(difference)} | dict(maxima or {}),
            minima=dict(minima or {}),
            sums=sums,
        )


def _peak(difference: Tensor) -> Tensor:
    return difference.detach().abs().max() if difference.numel() else difference.new_zeros(())
