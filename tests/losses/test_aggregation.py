"""Means over tokens, rows and prompts, worked out by hand."""

import pytest
import torch
from builders.loss_case import floats
from torch import Tensor

from drydock.errors import ConfigError, UserError
from drydock.losses import Aggregation, LossInputs, aggregate, count_denominators, count_prompt_tokens, resolve_loss
from drydock.losses.aggregation import AggregationConfig, check_aggregation

VALUES = floats([1, 2, 3], [4, 9, 9], [9, 9, 9])
MASK = floats([1, 1, 1], [1, 0, 0], [0, 0, 0])
GROUPS = torch.tensor([7, 7, 3])
OTHERS = [mode for mode in Aggregation if mode is not Aggregation.PROMPT_MEAN]


def inputs(mask: Tensor, weights: Tensor | None = None, groups: Tensor | None = None) -> LossInputs:
    counts = None if groups is None else count_prompt_tokens(mask, groups)
    return LossInputs(torch.zeros_like(mask), mask, row_weights=weights, prompt_tokens=counts)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Aggregation.TOKEN_MEAN, 10 / 4),
        (Aggregation.SEQ_MEAN_TOKEN_MEAN, (2 + 4) / 2),
        (Aggregation.SEQ_MEAN_TOKEN_SUM, (6 + 4) / 2),
        (Aggregation.SEQ_MEAN_TOKEN_SUM_NORM, (6 + 4) / 2 / 3),
    ],
)
def test_real_tokens_and_rows_that_train_are_counted(mode: Aggregation, expected: float):
    assert aggregate(VALUES, inputs(MASK), mode, count_denominators(MASK)).item() == pytest.approx(expected)


def test_a_constant_takes_the_place_of_the_padded_width():
    mode = Aggregation.SEQ_MEAN_TOKEN_SUM_NORM
    loss = aggregate(VALUES, inputs(MASK), mode, count_denominators(MASK), loss_scale_factor=20.0)
    assert loss.item() == pytest.approx((6 + 4) / 2 / 20)


def test_a_constant_without_its_mode_is_refused():
    with pytest.raises(ConfigError, match=r"loss_scale_factor .* loss_agg_mode 'token-mean'"):
        resolve_loss("grpo", {"loss_scale_factor": 5})


def test_prompt_mean_is_the_mean_over_prompts_of_their_token_means():
    mask = floats([1, 1, 1], [1, 0, 0], [1, 1, 0])
    denominators = count_denominators(mask, prompt_group_ids=GROUPS)
    loss = aggregate(VALUES, inputs(mask, groups=GROUPS), Aggregation.PROMPT_MEAN, denominators)
    # prompt 7: (1 + 2 + 3 + 4) / 4, prompt 3: (9 + 9) / 2
    assert loss.item() == pytest.approx((2.5 + 9) / 2)


def test_prompt_mean_leaves_out_prompts_that_train_nothing():
    denominators = count_denominators(MASK, prompt_group_ids=GROUPS)
    loss = aggregate(VALUES, inputs(MASK, groups=GROUPS), Aggregation.PROMPT_MEAN, denominators)
    assert loss.item() == pytest.approx(2.5)


def test_row_weights_take_the_place_of_the_number_of_prompts():
    mask = torch.ones(3, 3, dtype=torch.float64)
    weights = floats([0.1, 0.1, 0.2])[0]
    denominators = count_denominators(mask, weights, prompt_group_ids=GROUPS)
    loss = aggregate(VALUES, inputs(mask, weights, GROUPS), Aggregation.PROMPT_MEAN, denominators)
    assert loss.item() == pytest.approx(0.1 * 6 / 6 + 0.1 * 22 / 6 + 0.2 * 27 / 3)


def test_prompt_mean_says_what_it_needs():
    config = AggregationConfig(loss_agg_mode=Aggregation.PROMPT_MEAN)
    with pytest.raises(UserError, match="prompt_group_ids, or"):
        check_aggregation(config, {"prompt_token_counts": MASK[:, 0].numpy()})
    check_aggregation(config, {"prompt_group_ids": GROUPS.numpy()})


@pytest.mark.parametrize("mode", list(Aggregation))
def test_given_denominators_make_parts_add_up_to_the_whole(mode: Aggregation):
    whole = count_denominators(MASK, batch_num_tokens=20, global_batch_size=5, dp_size=2, prompt_group_ids=GROUPS)
    every = inputs(MASK, groups=GROUPS)
    parts = 0.0
    for row in range(3):
        one = LossInputs(
            VALUES[row : row + 1], MASK[row : row + 1], prompt_tokens=count_prompt_tokens(MASK, GROUPS)[row : row + 1]
        )
        parts += aggregate(VALUES[row : row + 1], one, mode, whole).item()
    assert aggregate(VALUES, every, mode, whole).item() == pytest.approx(parts)


def test_row_weights_let_a_rollout_in_two_rows_count_once():
    values, mask = floats([1, 3], [5, 5], [7, 7]), torch.ones(3, 2, dtype=torch.float64)
    weights = floats([0.5, 0.5, 1.0])[0]
    denominators = count_denominators(mask, weights)
    loss = aggregate(values, inputs(mask, weights), Aggregation.SEQ_MEAN_TOKEN_MEAN, denominators)
    assert loss.item() == pytest.approx(((2 + 5) / 2 + 7) / 2)


@pytest.mark.parametrize("mode", list(Aggregation))
def test_an_empty_mask_is_zero(mode: Aggregation):
    mask = torch.zeros(3, 3, dtype=torch.float64)
    denominators = count_denominators(mask, prompt_group_ids=GROUPS)
    assert aggregate(VALUES, inputs(mask, groups=GROUPS), mode, denominators).item() == 0
