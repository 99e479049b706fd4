"""The `grpo` loss, golden values worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from builders.loss_case import floats, gradient_of, logs, run_loss
from torch import Tensor

from drydock.errors import UserError
from drydock.losses import Aggregation, LossInputs, LossOutput

# One row, probabilities .6 and .3 against old .5 and .4 (ratios 1.2 and .75), advantages 1 and -2.
NOW, OLD, ADVANTAGES = logs([0.6, 0.3]), logs([0.5, 0.4]), floats([1.0, -2.0])
PROX = logs([0.4, 0.2])  # behaviour weights .8 and .5, ratios to prox 1.5 and 1.5


def inputs(logprobs: Tensor, old: Tensor | None, advantages: Tensor, mask: Tensor | None = None) -> LossInputs:
    return LossInputs(logprobs, torch.ones_like(logprobs) if mask is None else mask, advantages, old)


CASE = inputs(NOW, OLD, ADVANTAGES)


def run(given: LossInputs, **settings: Any) -> LossOutput:
    return run_loss("grpo", settings, given)


def value(given: LossInputs, **settings: Any) -> float:
    return run(given, **settings).loss.item()


def test_token_ratio_is_clipped_on_the_side_that_hurts():
    output = run(CASE, eps_clip=0.1)
    # max(-1.2, -1.1) = -1.1 and max(1.5, 2 * 0.9) = 1.8
    assert output.loss.item() == pytest.approx((-1.1 + 1.8) / 2)
    assert output.means["clip_ratio"].item() == 2
    assert output.means["importance_weight"].item() == pytest.approx(1.95)
    assert output.means["approx_kl"].item() == pytest.approx(math.log(1.2) + math.log(0.75))
    assert output.means["entropy"].item() == pytest.approx(-math.log(0.6) - math.log(0.3))
    assert output.maxima["logprob_diff_max"].item() == pytest.approx(math.log(4 / 3))


def test_upper_clip_distance_is_separate():
    assert value(CASE, eps_clip=0.1, eps_clip_higher=0.15) == pytest.approx((-1.15 + 1.8) / 2)


def test_sequence_ratio_is_the_geometric_mean_and_the_advantage_the_row_mean():
    output = run(CASE, eps_clip=0.1, importance_sampling_level="sequence")
    # s = sqrt(1.2 * .75) = sqrt(.9), A = -.5, within the clip range
    assert output.loss.item() == pytest.approx(0.5 * math.sqrt(0.9))
    assert output.means["clip_ratio"].item() == 0


def test_gspo_token_has_the_sequence_ratio_and_an_advantage_for_each_token():
    loss, gradient = gradient_of("grpo", {"eps_clip": 0.1, "importance_sampling_level": "sequence_token"}, CASE)
    # s = sqrt(.9) for both tokens: -s and 2 s; the gradient of each is its own term
    assert loss == pytest.approx(0.5 * math.sqrt(0.9))
    assert gradient[0].tolist() == pytest.approx([-math.sqrt(0.9) / 2, math.sqrt(0.9)])
    settings = {"loss_agg_mode": "seq-mean-token-mean", "eps_clip": 0.1}
    constant = inputs(NOW, OLD, floats([1.5, 1.5]))
    levels = [
        gradient_of("grpo", settings | {"importance_sampling_level": level}, constant)
        for level in ("sequence", "sequence_token")
    ]
    assert levels[0][0] == pytest.approx(levels[1][0])
    assert torch.allclose(levels[0][1], levels[1][1]), "GSPO and GSPO-token agree where a row has one advantage"


def test_sequence_ratio_looks_at_masked_positions_only():
    wider = inputs(logs([0.6, 0.9, 0.3]), logs([0.5, 0.1, 0.4]), floats([1.0, 77.0, -2.0]), floats([1, 0, 1]))
    assert value(wider, eps_clip=0.1, importance_sampling_level="sequence") == pytest.approx(0.5 * math.sqrt(0.9))


def test_dual_clip_bounds_the_loss_of_a_token_with_negative_advantage():
    given = inputs(logs([0.5]), logs([0.1]), floats([-2.0]))
    assert value(given) == pytest.approx(10.0)
    assert value(given, c_clip=3.0) == pytest.approx(6.0)
    assert value(inputs(logs([0.5]), logs([0.1]), floats([2.0])), c_clip=3.0) == pytest.approx(-2.4)


def test_without_old_logprobs_the_gradient_is_plain_policy_gradient():
    loss, gradient = gradient_of("grpo", {"eps_clip": 3e-4}, inputs(NOW, None, ADVANTAGES))
    assert loss == pytest.approx(0.5)
    assert torch.allclose(gradient, -ADVANTAGES / 2)


def test_a_huge_log_ratio_does_not_overflow():
    given = inputs(floats([0.0]), floats([-1000.0]), floats([-1.0]))
    assert math.isfinite(value(given))


def test_a_fractional_mask_is_refused():
    with pytest.raises(UserError, match="only 0 and 1"):
        run(inputs(NOW, OLD, ADVANTAGES, torch.full_like(NOW, 0.5)))


def test_missing_advantages_are_refused():
    with pytest.raises(UserError, match="advantages"):
        run(LossInputs(NOW, torch.ones_like(NOW)))


def test_an_empty_mask_gives_a_zero_loss_with_a_graph():
    empty = inputs(NOW, OLD, ADVANTAGES, torch.zeros_like(NOW))
    for level in ("token", "sequence"):
        for mode in Aggregation:
            groups = torch.zeros(1, dtype=torch.long)
            settings = {"importance_sampling_level": level, "loss_agg_mode": mode}
            loss, gradient = gradient_of("grpo", settings, empty, prompt_group_ids=groups)
            assert loss == 0
            assert not gradient.any()


# Three policies


def test_decoupled_ratio_is_to_the_proximal_policy_and_weighted_by_the_behaviour_weight():
    given = replace(CASE, prox_logprobs=PROX)
    output = run(given, eps_clip=0.2, use_decoupled_loss=True)
    # max(-1.5, -1.2) * .8 and max(3, 2.4) * .5
    assert output.loss.item() == pytest.approx((-1.2 * 0.8 + 3.0 * 0.5) / 2)
    assert output.means["behav_imp_weight"].item() == pytest.approx(1.3)
    # w - 1 - log w
    assert output.means["sampler_trainer_kl"].item() == pytest.approx(1.3 - 2 - math.log(0.4))


def test_tokens_beyond_the_behaviour_cap_are_dropped_and_still_counted():
    output = run(replace(CASE, prox_logprobs=PROX), behav_imp_weight_cap=0.6)
    assert output.loss.item() == pytest.approx(3.0 * 0.5 / 2)
    assert output.means["behav_capped"].item() == 1


def test_the_behaviour_weight_has_no_gradient():
    given = replace(CASE, prox_logprobs=PROX)
    _, gradient = gradient_of("grpo", {"eps_clip": 0.6}, given)
    # d/dlp of -A r w is -A r w
    assert torch.allclose(gradient, floats([-1.5 * 0.8, 2 * 1.5 * 0.5]) / 2)


def test_loglinear_prox_is_interpolated_by_version():
    given = replace(CASE, versions=floats([5.0, 2.0]))
    output = run(given, prox_logp_method="loglinear", current_version=5, eps_clip=10)
    # v_b = v: alpha 0, prox = old, r = 1.2, w = 1; v_b = v - 3: alpha 2/3, r = .75^(1/3), w = .75^(2/3): r w = .75
    assert output.loss.item() == pytest.approx((-1.2 + 1.5) / 2)
    assert output.means["importance_weight"].item() == pytest.approx(1.2 + 0.75 ** (1 / 3))
    assert output.means["staleness"].item() == 3
    assert output.maxima["staleness_max"].item() == 3


def test_method_metrics_reports_the_distance_of_the_interpolation_and_uses_what_was_sent():
    given = replace(CASE, prox_logprobs=PROX, versions=floats([5.0, 5.0]))
    output = run(given, prox_logp_method="metrics", current_version=5)
    assert output.loss.item() == run(replace(CASE, prox_logprobs=PROX)).loss.item()
    assert output.means["prox_loglinear_diff"].item() == pytest.approx(math.log(5 / 4) + math.log(2))


def test_rollout_is_weights_multiply_the_policy_term_only():
    given = replace(CASE, is_weights=floats([0.5, 2.0]), ref_logprobs=OLD)
    expected = (-1.2 * 0.5 + 1.6 * 2) / 2
    assert value(given, eps_clip=0.2) == pytest.approx(expected)
    with_kl = value(given, eps_clip=0.2, use_kl_loss=True, kl_loss_coef=1.0, kl_loss_type="k1")
    assert with_kl - expected == pytest.approx((math.log(1.2) + math.log(0.75)) / 2)


# Other surrogates


def test_cispo_clips_the_weight_and_keeps_the_gradient():
    settings = {"use_cispo_loss": True, "eps_clip": 0.1, "eps_clip_higher": 0.15}
    loss, gradient = gradient_of("grpo", settings, CASE)
    assert loss == pytest.approx((-1.15 * math.log(0.6) + 2 * 0.9 * math.log(0.3)) / 2)
    assert torch.allclose(gradient, floats([-1.15, 1.8]) / 2)


def test_cispo_with_only_an_upper_cap():
    loss, _ = gradient_of("grpo", {"use_cispo_loss": True, "is_weight_clip_max": 1.0}, CASE)
    assert loss == pytest.approx((-1.0 * math.log(0.6) + 2 * 0.75 * math.log(0.3)) / 2)


def test_sapo_gate():
    def gate(tau: float, ratio: float) -> float:
        return 4 / tau / (1 + math.exp(-tau * (ratio - 1)))

    output = value(CASE, use_sapo_loss=True, sapo_tau_pos=1.0, sapo_tau_neg=1.05)
    assert output == pytest.approx((-gate(1, 1.2) + 2 * gate(1.05, 0.75)) / 2, rel=1e-12)


def test_sapo_is_plain_policy_gradient_on_policy():
    _, gradient = gradient_of("grpo", {"use_sapo_loss": True}, inputs(NOW, NOW, ADVANTAGES))
    assert torch.allclose(gradient, -ADVANTAGES / 2)


def test_m2po_drops_the_largest_squares_until_their_mean_is_below_the_threshold():
    old = torch.zeros(2, 2, dtype=torch.float64)
    prox = floats([0.1, -0.2], [0.4, 0.0])  # squares .01 .04 .16 0; means of the smallest: 0 .005 .0167 .0525
    given = LossInputs(prox.clone(), torch.ones(2, 2).double(), torch.ones(2, 2).double(), old, prox_logprobs=prox)
    output = run(given, m2_threshold=0.02)
    assert output.means["m2_dropped"].item() == 1
    assert output.loss.item() == pytest.approx(-(math.exp(0.1) + math.exp(-0.2) + 1) / 4)
    assert run(given, m2_threshold=0.06).means["m2_dropped"].item() == 0


# KL and entropy

KL = {
    "k1": math.log(1.2),
    "kl": math.log(1.2),
    "abs": math.log(1.2),
    "k2": math.log(1.2) ** 2 / 2,
    "mse": math.log(1.2) ** 2 / 2,
    "k3": 1 / 1.2 - math.log(1 / 1.2) - 1,
    "low_var_kl": 1 / 1.2 - math.log(1 / 1.2) - 1,
}


@pytest.mark.parametrize("kind", list(KL))
def test_kl_estimators(kind: str):
    given = LossInputs(logs([0.6]), floats([1.0]), floats([0.0]), ref_logprobs=logs([0.5]))
    output = run(given, use_kl_loss=True, kl_loss_coef=0.5, kl_loss_type=kind)
    assert output.loss.item() == pytest.approx(0.5 * KL[kind])
    assert output.means["ref_kl"].item() == pytest.approx(KL[kind])
    assert output.sums["loss_term_kl"].item() == pytest.approx(0.5 * KL[kind])


def test_an_importance_weighted_kl_has_an_unbiased_gradient():
    given = LossInputs(logs([0.6]), floats([1.0]), floats([0.0]), logs([0.3]), ref_logprobs=logs([0.5]))
    settings = {"use_kl_loss": True, "kl_loss_coef": 1.0, "kl_importance_weighted": True}
    loss, gradient = gradient_of("grpo", settings, given)
    assert loss == pytest.approx(2 * KL["k3"])
    # d/dlp of r (e^d - d - 1) = r (e^d - d - 1) + r (1 - e^d) = -r d = r (lp - ref)
    assert gradient.item() == pytest.approx(2 * math.log(1.2))


def test_reference_logprobs_without_a_kl_loss_are_reported_only():
    given = replace(CASE, ref_logprobs=OLD)
    output = run(given)
    assert output.loss.item() == value(CASE)
    assert output.means["ref_kl"].item() > 0


def test_the_entropy_bonus_has_a_gradient():
    logits = torch.tensor([[[1.0, 0.0, -1.0]]], dtype=torch.float64, requires_grad=True)
    every = logits.log_softmax(-1)
    given = LossInputs(every[..., 0], floats([1.0]), floats([0.0]), entropy=-(every.exp() * every).sum(-1))
    output = run(given, entropy_coeff=0.5)
    output.loss.backward()
    probabilities = [math.exp(x) / (math.e + 1 + 1 / math.e) for x in (1, 0, -1)]
    entropy = -sum(p * math.log(p) for p in probabilities)
    assert output.loss.item() == pytest.approx(-0.5 * entropy)
    assert logits.grad is not None
    # dH/dlogit = -p (log p + H)
    assert logits.grad.flatten().tolist() == pytest.approx([0.5 * p * (math.log(p) + entropy) for p in probabilities])


def test_an_entropy_bonus_without_entropy_is_refused():
    with pytest.raises(UserError, match="entropy_coeff"):
        run(CASE, entropy_coeff=0.5)
