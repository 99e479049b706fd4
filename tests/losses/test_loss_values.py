"""Golden values worked out by hand, and gradients against finite differences in float64."""

import math

import pytest
import torch
from torch import Tensor

from drydock.errors import UserError
from drydock.losses import (
    Aggregation,
    CrossEntropyConfig,
    GrpoConfig,
    LossInputs,
    LossOutput,
    aggregate,
    count_denominators,
    cross_entropy_loss,
    grpo_loss,
)


def inputs(logprobs: Tensor, old: Tensor | None, advantages: Tensor, mask: Tensor | None = None) -> LossInputs:
    return LossInputs(logprobs, torch.ones_like(logprobs) if mask is None else mask, advantages, old)


def run(given: LossInputs, config: GrpoConfig) -> LossOutput:
    denominators = count_denominators(
        given.loss_mask,
        given.row_weights,
        batch_num_tokens=config.batch_num_tokens,
        global_batch_size=config.global_batch_size,
        dp_size=config.dp_size,
    )
    return grpo_loss(given, config, denominators)


def logs(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


# One row, probabilities .6 and .3 against old .5 and .4 (ratios 1.2 and .75), advantages 1 and -2.
NOW, OLD, ADVANTAGES = logs([0.6, 0.3]), logs([0.5, 0.4]), torch.tensor([[1.0, -2.0]], dtype=torch.float64)


def test_token_ratio_is_clipped_on_the_side_that_hurts():
    output = run(inputs(NOW, OLD, ADVANTAGES), GrpoConfig(eps_clip=0.1))
    # max(-1.2, -1.1) = -1.1 and max(1.5, 2 * 0.9) = 1.8
    assert output.loss.item() == pytest.approx((-1.1 + 1.8) / 2)
    assert output.means["clip_ratio"].item() == 2
    assert output.means["importance_weight"].item() == pytest.approx(1.95)
    assert output.means["approx_kl"].item() == pytest.approx(math.log(1.2) + math.log(0.75))
    assert output.means["entropy"].item() == pytest.approx(-math.log(0.6) - math.log(0.3))
    assert output.maxima["logprob_diff_max"].item() == pytest.approx(math.log(4 / 3))


def test_upper_clip_distance_is_separate():
    output = run(inputs(NOW, OLD, ADVANTAGES), GrpoConfig(eps_clip=0.1, eps_clip_higher=0.15))
    assert output.loss.item() == pytest.approx((-1.15 + 1.8) / 2)


def test_sequence_ratio_is_the_geometric_mean_and_the_advantage_the_row_mean():
    output = run(inputs(NOW, OLD, ADVANTAGES), GrpoConfig(eps_clip=0.1, importance_sampling_level="sequence"))
    # s = sqrt(1.2 * .75) = sqrt(.9), A = -.5, within the clip range
    assert output.loss.item() == pytest.approx(0.5 * math.sqrt(0.9))
    assert output.means["clip_ratio"].item() == 0


def test_sequence_ratio_looks_at_masked_positions_only():
    wider = inputs(
        logs([0.6, 0.9, 0.3]),
        logs([0.5, 0.1, 0.4]),
        torch.tensor([[1.0, 77.0, -2.0]], dtype=torch.float64),
        torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64),
    )
    output = run(wider, GrpoConfig(eps_clip=0.1, importance_sampling_level="sequence"))
    assert output.loss.item() == pytest.approx(0.5 * math.sqrt(0.9))


def test_dual_clip_bounds_the_loss_of_a_token_with_negative_advantage():
    given = inputs(logs([0.5]), logs([0.1]), torch.tensor([[-2.0]], dtype=torch.float64))
    assert run(given, GrpoConfig()).loss.item() == pytest.approx(10.0)
    assert run(given, GrpoConfig(c_clip=3.0)).loss.item() == pytest.approx(6.0)
    positive = inputs(logs([0.5]), logs([0.1]), torch.tensor([[2.0]], dtype=torch.float64))
    assert run(positive, GrpoConfig(c_clip=3.0)).loss.item() == pytest.approx(-2.4)


def test_without_old_logprobs_the_gradient_is_plain_policy_gradient():
    logprobs = NOW.clone().requires_grad_()
    output = run(inputs(logprobs, None, ADVANTAGES), GrpoConfig(eps_clip=3e-4, importance_sampling_level="token"))
    output.loss.backward()
    assert logprobs.grad is not None
    assert output.loss.item() == pytest.approx(0.5)
    assert torch.allclose(logprobs.grad, -ADVANTAGES / 2)


def test_a_huge_log_ratio_does_not_overflow():
    given = inputs(torch.tensor([[0.0]]), torch.tensor([[-1000.0]]), torch.tensor([[-1.0]]))
    assert math.isfinite(run(given, GrpoConfig()).loss.item())


def test_a_fractional_mask_is_refused():
    with pytest.raises(UserError, match="only 0 and 1"):
        run(inputs(NOW, OLD, ADVANTAGES, torch.full_like(NOW, 0.5)), GrpoConfig())


def test_missing_advantages_are_refused():
    with pytest.raises(UserError, match="advantages"):
        run(LossInputs(NOW, torch.ones_like(NOW)), GrpoConfig())


VALUES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
MASK = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Aggregation.TOKEN_MEAN, 10 / 4),
        (Aggregation.SEQ_MEAN_TOKEN_MEAN, (2 + 4) / 2),
        (Aggregation.SEQ_MEAN_TOKEN_SUM, (6 + 4) / 2),
        (Aggregation.SEQ_MEAN_TOKEN_SUM_NORM, (6 + 4) / 2 / 3),
    ],
)
def test_aggregation_counts_real_tokens_and_rows_that_train(mode: Aggregation, expected: float):
    assert aggregate(VALUES, MASK, mode, count_denominators(MASK)).item() == pytest.approx(expected)


@pytest.mark.parametrize("mode", list(Aggregation))
def test_given_denominators_make_parts_add_up_to_the_whole(mode: Aggregation):
    whole = count_denominators(MASK, batch_num_tokens=20, global_batch_size=5, dp_size=2)
    parts = sum(aggregate(VALUES[i : i + 1], MASK[i : i + 1], mode, whole).item() for i in range(3))
    assert aggregate(VALUES, MASK, mode, whole).item() == pytest.approx(parts)


def test_row_weights_let_a_rollout_in_two_rows_count_once():
    values, mask = torch.tensor([[1.0, 3.0], [5.0, 5.0], [7.0, 7.0]]), torch.ones(3, 2)
    weights = torch.tensor([0.5, 0.5, 1.0])
    loss = aggregate(values, mask, Aggregation.SEQ_MEAN_TOKEN_MEAN, count_denominators(mask, weights), weights)
    assert loss.item() == pytest.approx(((2 + 5) / 2 + 7) / 2)


def test_an_empty_mask_gives_a_zero_loss_with_a_graph():
    logprobs = NOW.clone().requires_grad_()
    for level in ("token", "sequence"):
        given = inputs(logprobs, OLD, ADVANTAGES, torch.zeros_like(NOW))
        for mode in Aggregation:
            output = run(given, GrpoConfig(importance_sampling_level=level, loss_agg_mode=mode))
            output.loss.backward()
            assert output.loss.item() == 0
    assert logprobs.grad is not None
    assert not logprobs.grad.any()


def test_cross_entropy_is_a_weighted_mean():
    weights = torch.tensor([[1.0, 0.5]], dtype=torch.float64)
    given = LossInputs(NOW, weights)
    output = cross_entropy_loss(given, CrossEntropyConfig(), count_denominators(weights))
    assert output.loss.item() == pytest.approx((-math.log(0.6) - 0.5 * math.log(0.3)) / 1.5)
    fixed = cross_entropy_loss(given, CrossEntropyConfig(), count_denominators(weights, batch_num_tokens=10))
    assert fixed.loss.item() == pytest.approx((-math.log(0.6) - 0.5 * math.log(0.3)) / 10)


@pytest.mark.parametrize("mode", list(Aggregation))
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("c_clip", [None, 1.2])
def test_gradients_agree_with_finite_differences(mode: Aggregation, level: str, c_clip: float | None):
    generator = torch.Generator().manual_seed(3)
    shape = (4, 5)
    old = -torch.rand(shape, generator=generator, dtype=torch.float64)
    logprobs = (old + 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    advantages = torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = (torch.rand(shape, generator=generator) > 0.3).double()
    mask[3] = 0
    weights = torch.rand(4, generator=generator, dtype=torch.float64) + 0.5
    config = GrpoConfig(
        eps_clip=0.15, eps_clip_higher=0.25, c_clip=c_clip, importance_sampling_level=level, loss_agg_mode=mode
    )

    def loss(values: Tensor) -> Tensor:
        return run(LossInputs(values, mask, advantages, old, weights), config).loss

    assert torch.autograd.gradcheck(loss, (logprobs,), eps=1e-7, atol=1e-6)
