"""Every loss beside `grpo`, golden values worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from builders.loss_case import floats, gradient_of, logs, run_loss

from drydock.errors import UserError
from drydock.losses import LossInputs
from drydock.losses.distillation import DistillationConfig, check_distillation
from drydock.losses.dpo import DpoConfig, check_dpo
from drydock.losses.echo import EchoConfig, check_echo

NOW, OLD, ADVANTAGES = logs([0.6, 0.3]), logs([0.5, 0.4]), floats([1.0, -2.0])
CASE = LossInputs(NOW, torch.ones(1, 2).double(), ADVANTAGES, OLD)


def test_cross_entropy_is_a_weighted_mean():
    given = LossInputs(NOW, floats([1.0, 0.5]))
    nll = -math.log(0.6) - 0.5 * math.log(0.3)
    assert run_loss("causal_cross_entropy", {}, given).loss.item() == pytest.approx(nll / 1.5)
    assert run_loss("causal_cross_entropy", {"batch_num_tokens": 10}, given).loss.item() == pytest.approx(nll / 10)


@pytest.mark.parametrize("name", ["sft", "sft_ce"])
def test_sft_is_the_mean_over_labelled_tokens(name: str):
    output = run_loss(name, {}, LossInputs(NOW, floats([1.0, 1.0])))
    assert output.loss.item() == pytest.approx(-(math.log(0.6) + math.log(0.3)) / 2)
    assert output.means["loss"].item() / 2 == pytest.approx(output.loss.item())


def test_rollout_is_weighs_by_the_ratio_and_drops_what_is_outside():
    loss, gradient = gradient_of("rollout_is", {"eps_clip": 0.2, "eps_clip_higher": 0.25}, CASE)
    # .75 is below .8: dropped
    assert loss == pytest.approx(-1.2 * math.log(0.6) / 2)
    assert torch.allclose(gradient, floats([-1.2, 0.0]) / 2)
    assert run_loss("rollout_is", {"eps_clip": 0.2, "eps_clip_higher": 0.25}, CASE).means["clip_ratio"].item() == 1


def test_dppo_masks_a_token_that_moved_too_far_in_the_direction_of_its_advantage():
    # |p - q| is .1 at both; rising with A > 0, falling with A < 0
    assert run_loss("dppo", {}, CASE).loss.item() == pytest.approx((-1.2 + 1.5) / 2)
    assert run_loss("dppo", {"delta_high": 0.09}, CASE).loss.item() == pytest.approx(1.5 / 2)
    assert run_loss("dppo", {"delta_low": 0.09}, CASE).loss.item() == pytest.approx(-1.2 / 2)
    turned = replace(CASE, advantages=-ADVANTAGES)
    assert run_loss("dppo", {"delta_low": 0.01, "delta_high": 0.01}, turned).means["clip_ratio"].item() == 0


def test_dppo_binary_kl_and_the_squared_pull():
    given = LossInputs(logs([0.6]), floats([1.0]), floats([1.0]), logs([0.5]))
    divergence = 0.5 * math.log(0.5 / 0.6) + 0.5 * math.log(0.5 / 0.4)
    output = run_loss("dppo", {"divergence": "kl", "delta_high": divergence + 1e-9, "kl_tau": 2.0}, given)
    assert output.means["divergence"].item() == pytest.approx(divergence)
    assert output.loss.item() == pytest.approx(-1.2 + 2 * math.log(1.2) ** 2)
    masked = run_loss("dppo", {"divergence": "kl", "delta_high": divergence - 1e-9}, given)
    assert masked.loss.item() == 0


# Two pairs, rows mixed. Log ratios to the reference, summed over the mask: chosen log 2 and 0, rejected log .5 and 0.
PAIRS = LossInputs(
    logs([0.25, 0.5], [0.4, 0.4], [0.5, 0.4], [0.2, 0.9]),
    floats([1, 1], [1, 1], [1, 1], [1, 0]),
    ref_logprobs=logs([0.5, 0.5], [0.4, 0.4], [0.5, 0.2], [0.2, 0.1]),
    pair_ids=torch.tensor([9, 4, 9, 4]),
    chosen=floats([0, 1, 1, 0])[0],
)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_dpo():
    output = run_loss("dpo", {"beta": 0.5}, PAIRS)
    margin = 0.5 * math.log(4)
    assert output.loss.item() == pytest.approx((-math.log(sigmoid(margin)) - math.log(0.5)) / 2)
    assert output.sums["rewards_margin"].item() == pytest.approx(margin / 2)
    assert output.sums["rewards_accuracy"].item() == 0.5
    assert output.sums["rewards_chosen"].item() == pytest.approx(0.5 * math.log(2) / 2)


def test_dpo_variants():
    margin = math.log(4)
    smoothed = run_loss("dpo", {"beta": 1.0, "label_smoothing": 0.1}, PAIRS).loss.item()
    expected = -0.9 * math.log(sigmoid(margin)) - 0.1 * math.log(sigmoid(-margin)) - math.log(0.5)
    assert smoothed == pytest.approx(expected / 2)
    ipo = run_loss("dpo", {"beta": 0.5, "loss_type": "ipo", "global_batch_size": 4}, PAIRS).loss.item()
    assert ipo == pytest.approx(((margin - 1) ** 2 + 1) / 4)
    normalized = run_loss("dpo", {"beta": 1.0, "length_normalized": True, "nll_coef": 2.0}, PAIRS).loss.item()
    nll = -(math.log(0.5) + math.log(0.4)) / 2 - math.log(0.4)
    assert normalized == pytest.approx((-math.log(sigmoid(margin / 2)) - math.log(0.5) + 2 * nll) / 2)


@pytest.mark.parametrize(
    ("ids", "chosen", "message"),
    [
        ([1, 1, 2], [1, 0, 1], "pair 2 .* 1 chosen and 0 rejected"),
        ([1, 1, 1], [1, 0, 0], "pair 1 .* 1 chosen and 2 rejected"),
        ([1, 1], [1, 0.5], "must hold 1"),
    ],
)
def test_dpo_refuses_broken_pairs(ids: list[int], chosen: list[float], message: str):
    with pytest.raises(UserError, match=message):
        check_dpo(DpoConfig(), {"pair_ids": torch.tensor(ids).numpy(), "chosen": torch.tensor(chosen).numpy()})


def test_reverse_distillation_follows_the_teachers_verdict():
    given = LossInputs(NOW, torch.ones(1, 2).double(), teacher_logprobs=logs([0.3, 0.6]))
    loss, gradient = gradient_of("distillation", {}, given)
    assert loss == pytest.approx(-(math.log(0.5) * math.log(0.6) + math.log(2) * math.log(0.3)) / 2)
    assert torch.allclose(gradient, floats([math.log(2), -math.log(2)]) / 2)
    weighted = replace(given, old_logprobs=OLD)
    _, gradient = gradient_of("distillation", {"max_ratio": 1.1}, weighted)
    assert torch.allclose(gradient, floats([1.1 * math.log(2), -0.75 * math.log(2)]) / 2)


def test_forward_distillation_is_the_kl_of_the_top_tokens_and_the_rest():
    student, teacher = logs([0.2, 0.3])[:, None], logs([0.5, 0.25])[:, None]
    given = LossInputs(
        logs([0.2]), floats([1.0]), teacher_candidate_logprobs=teacher, candidate_logprobs=student.requires_grad_()
    )
    output = run_loss("distillation", {"direction": "forward_topk"}, given)
    expected = 0.5 * math.log(2.5) + 0.25 * math.log(0.25 / 0.3) + 0.25 * math.log(0.25 / 0.5)
    assert output.loss.item() == pytest.approx(expected)
    assert output.means["teacher_kl"].item() == pytest.approx(expected)
    same = replace(given, candidate_logprobs=teacher)
    assert run_loss("distillation", {"direction": "forward_topk"}, same).loss.item() == pytest.approx(0, abs=1e-12)


def test_distillation_says_what_it_needs():
    with pytest.raises(UserError, match="teacher_log_probs_shifted"):
        check_distillation(DistillationConfig(), {})
    with pytest.raises(UserError, match="teacher_topk_ids_shifted"):
        check_distillation(DistillationConfig(direction="forward_topk"), {})


def test_echo_adds_the_mean_cross_entropy_of_each_sequences_observations():
    given = LossInputs(
        logs([0.6, 0.3, 0.5, 0.25], [0.6, 0.3, 0.9, 0.9]),
        floats([1, 1, 0, 0], [1, 1, 0, 0]),
        floats([1, -2, 0, 0], [1, -2, 0, 0]),
        logs([0.5, 0.4, 1, 1], [0.5, 0.4, 1, 1]),
        observation_mask=floats([0, 0, 1, 1], [0, 0, 0, 0]),
    )
    settings = {"eps_clip": 0.1, "aux_ce_weight": 0.5, "echo_global_num_sequences": 4}
    output = run_loss("grpo_echo_v1", settings, given)
    auxiliary = 0.5 * (math.log(2) + math.log(4)) / 2 / 4
    assert output.loss.item() == pytest.approx((-1.1 + 1.8) / 2 + auxiliary)
    assert output.sums["loss_term_aux"].item() == pytest.approx(auxiliary)
    assert output.sums["loss_term_rl"].item() == pytest.approx(0.35)
    assert output.sums["echo_tokens"].item() == 2
    assert output.maxima["echo_contract_version"].item() == 1.0


def test_echo_refuses_masks_that_overlap_and_a_denominator_that_is_too_small():
    config = EchoConfig(aux_ce_weight=1.0, echo_global_num_sequences=1)
    mask = floats([1, 0], [1, 0]).numpy()
    sent = {"advantages": mask, "loss_mask": mask}
    with pytest.raises(UserError, match="row 0, position 0"):
        check_echo(config, sent | {"echo_observation_mask": mask})
    with pytest.raises(UserError, match="echo_global_num_sequences is 1"):
        check_echo(config, sent | {"echo_observation_mask": floats([0, 1], [0, 0]).numpy()})
    bearing = EchoConfig(
        aux_ce_weight=1.0, echo_global_num_sequences=1, echo_batch_denominator="echo_bearing_sequences"
    )
    check_echo(bearing, sent | {"echo_observation_mask": floats([0, 1], [0, 0]).numpy()})
