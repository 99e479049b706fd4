"""Corrections for the gap between sampler and trainer, worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from builders.loss_case import floats, logs, run_loss

from drydock.losses import LossInputs, LossOutput

# Two rows; trainer over sampler (rho): row 0: 2, 1/2; row 1: 4, 1. The policy is still the trainer's: ratio 1.
SAMPLER = logs([0.2, 0.4], [0.1, 0.5])
TRAINER = logs([0.4, 0.2], [0.4, 0.5])
CASE = LossInputs(TRAINER, torch.ones(2, 2).double(), floats([1, 2], [3, 4]), SAMPLER, prox_logprobs=TRAINER)


def run(given: LossInputs = CASE, **correction: Any) -> LossOutput:
    return run_loss("grpo", {"off_policy_correction": correction}, given)


def test_without_options_the_plain_behaviour_weight_stays():
    output = run()
    assert output.loss.item() == pytest.approx(-(2 * 1 + 0.5 * 2 + 4 * 3 + 1 * 4) / 4)
    assert output.means["is_ratio"].item() == pytest.approx(7.5)
    assert output.maxima["is_ratio_max"].item() == pytest.approx(4)
    assert output.minima["is_ratio_min"].item() == pytest.approx(0.5)


def test_token_tis_caps_the_weight():
    output = run(tis_ratio_type="token", token_tis_ratio_clip_high=2.0)
    assert output.loss.item() == pytest.approx(-(2 * 1 + 0.5 * 2 + 2 * 3 + 1 * 4) / 4)
    assert output.means["tis_capped"].item() == 1


def test_sequence_tis_weighs_a_row_by_its_capped_product():
    output = run(tis_ratio_type="sequence", sequence_tis_ratio_clip_high=3.0)
    assert output.loss.item() == pytest.approx(-(1 * 3 + 3 * 7) / 4)
    assert output.means["tis_capped"].item() == 2


def test_icepop_drops_tokens_outside_the_range():
    output = run(token_mask_is_threshold_low=0.6, token_mask_is_threshold_high=3.0)
    assert output.loss.item() == pytest.approx(-(2 * 1 + 1 * 4) / 4)
    assert output.means["is_masked_token"].item() == 2
    assert output.means["is_masked"].item() == 2


def test_geometric_mask_drops_rows():
    output = run(sequence_mask_metric="geometric")  # exp(mean log rho): 1 and 2
    assert output.loss.item() == pytest.approx(-(2 * 1 + 0.5 * 2) / 4)
    assert output.means["is_masked_sequence"].item() == 2


def test_product_mask_drops_rows():
    output = run(sequence_mask_metric="product", product_mask_high=3.9)
    assert output.loss.item() == pytest.approx(-(2 * 1 + 0.5 * 2) / 4)


def test_one_outlier_drops_its_row():
    output = run(outlier_token_is_threshold_low=0.6, outlier_token_is_threshold_high=100.0)
    assert output.loss.item() == pytest.approx(-(4 * 3 + 1 * 4) / 4)
    assert output.means["is_masked_outlier"].item() == 2


def test_a_row_that_the_policy_left_behind_loses_its_negative_tokens():
    now = logs([0.1, 0.2], [0.1, 0.5])  # mean log(sampler / now): log 2, and 0
    given = LossInputs(now, torch.ones(2, 2).double(), floats([1, -1], [-1, 1]), SAMPLER)
    output = run(given, off_policy_sequence_threshold=0.5)
    # ratios .5 .5 and 1 1; the one negative token of row 0 is dropped
    assert output.loss.item() == pytest.approx(-(0.8 * 0 + 0.5 * 1 - 1 + 1) / 4)
    assert output.means["is_masked_off_policy"].item() == 1
    kept = run(given, off_policy_sequence_threshold=math.log(2) + 0.01)
    assert kept.means["is_masked_off_policy"].item() == 0


def test_padding_and_unmasked_tokens_do_not_move_a_rows_mask():
    wide = LossInputs(
        logs([0.4, 0.2, 0.9]), floats([1, 1, 0]), floats([1, 2, 0]), logs([0.2, 0.4, 1e-9]), prox_logprobs=TRAINER
    )
    wide = replace(wide, prox_logprobs=logs([0.4, 0.2, 0.9]))
    output = run(wide, sequence_mask_metric="geometric", outlier_token_is_threshold_high=100.0)
    assert output.means["is_masked"].item() == 0
    assert output.maxima["is_ratio_max"].item() == pytest.approx(2)
