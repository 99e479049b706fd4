"""Every loss's gradient against finite differences, in float64.

Detached parts (weights, CISPO's and the reverse KL's coefficients, loglinear prox) are held fixed by a second copy of
the log-probs where a finite difference would otherwise move them.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from builders.loss_case import gradient_of, run_loss
from torch import Tensor

from drydock.losses import Aggregation, LossInputs

SHAPE = (4, 5)
GROUPS = torch.tensor([1, 1, 2, 2])


def case(seed: int = 3) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(SHAPE, generator=generator, dtype=torch.float64)

    old = -torch.rand(SHAPE, generator=generator, dtype=torch.float64) - 0.7
    mask = (torch.rand(SHAPE, generator=generator) > 0.3).double()
    mask[3] = 0
    return LossInputs(
        logprobs=old + normal(0.4),
        loss_mask=mask,
        advantages=normal(1.0),
        old_logprobs=old,
        prox_logprobs=old + normal(0.2),
        ref_logprobs=old + normal(0.3),
        teacher_logprobs=old + normal(0.3),
        is_weights=normal(0.2).exp(),
        row_weights=torch.rand(4, generator=generator, dtype=torch.float64) + 0.5,
        observation_mask=(1 - mask) * (torch.rand(SHAPE, generator=generator) > 0.5),
        entropy=-old,
        pair_ids=torch.tensor([1, 2, 2, 1]),
        chosen=torch.tensor([1.0, 0.0, 1.0, 0.0]),
    )


def two_policies(inputs: LossInputs) -> LossInputs:
    return replace(inputs, prox_logprobs=None)


WHOLE: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {"eps_clip": 0.15, "eps_clip_higher": 0.25, "importance_sampling_level": "sequence"}),
    ("grpo", {"eps_clip": 0.15, "c_clip": 1.2}),
    ("grpo", {"use_sapo_loss": True}),
    ("grpo", {"use_sapo_loss": True, "importance_sampling_level": "sequence"}),
    ("grpo", {"behav_imp_weight_cap": 1.2, "m2_threshold": 0.03}),
    ("grpo", {"off_policy_correction": {"tis_ratio_type": "token", "sequence_mask_metric": "product"}}),
    ("grpo", {"use_kl_loss": True, "kl_loss_coef": 0.7, "kl_loss_type": "k1"}),
    ("grpo", {"use_kl_loss": True, "kl_loss_coef": 0.7, "kl_loss_type": "k2"}),
    ("grpo", {"use_kl_loss": True, "kl_loss_coef": 0.7, "kl_loss_type": "abs"}),
    ("grpo", {"use_kl_loss": True, "kl_loss_coef": 0.7, "kl_importance_weighted": True}),
    ("grpo_echo_v1", {"aux_ce_weight": 0.4, "echo_global_num_sequences": 6}),
    ("dppo", {"delta_low": 0.05, "delta_high": 0.05, "kl_tau": 0.3}),
    ("dpo", {"beta": 0.7}),
    ("dpo", {"beta": 0.7, "label_smoothing": 0.1, "length_normalized": True, "nll_coef": 0.3}),
    ("dpo", {"beta": 0.7, "loss_type": "ipo"}),
    ("causal_cross_entropy", {}),
    ("sft", {}),
]


@pytest.mark.parametrize(("name", "settings"), WHOLE, ids=str)
def test_gradient_is_that_of_the_reported_loss(name: str, settings: dict[str, Any]):
    given = case() if name == "grpo" else two_policies(case())

    def loss(values: Tensor) -> Tensor:
        return run_loss(name, settings, replace(given, logprobs=values)).loss

    assert torch.autograd.gradcheck(loss, (given.logprobs.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("mode", list(Aggregation))
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("c_clip", [None, 1.2])
def test_gradient_in_every_aggregation(mode: Aggregation, level: str, c_clip: float | None):
    given = two_policies(case())
    settings = {"eps_clip": 0.15, "c_clip": c_clip, "importance_sampling_level": level, "loss_agg_mode": mode}

    def loss(values: Tensor) -> Tensor:
        return run_loss("grpo", settings, replace(given, logprobs=values), prompt_group_ids=GROUPS).loss

    assert torch.autograd.gradcheck(loss, (given.logprobs.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("mode", list(Aggregation))
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo_echo_v1", {"aux_ce_weight": 0.4, "echo_global_num_sequences": 6}),
        ("dppo", {"delta_low": 0.05, "delta_high": 0.05, "kl_tau": 0.3}),
    ],
)
def test_gradient_of_the_other_losses_in_every_aggregation(mode: Aggregation, name: str, settings: dict[str, Any]):
    given = two_policies(case())

    def loss(values: Tensor) -> Tensor:
        config = settings | {"loss_agg_mode": mode}
        return run_loss(name, config, replace(given, logprobs=values), prompt_group_ids=GROUPS).loss

    assert torch.autograd.gradcheck(loss, (given.logprobs.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


def test_gradient_by_the_entropy():
    given = case()
    assert given.entropy is not None

    def loss(values: Tensor) -> Tensor:
        return run_loss("grpo", {"entropy_coeff": 0.3}, replace(given, entropy=values)).loss

    assert torch.autograd.gradcheck(loss, (given.entropy.clone().requires_grad_(),))


@pytest.mark.parametrize("mode", list(Aggregation))
def test_gradient_by_the_candidates_of_the_forward_kl(mode: Aggregation):
    generator = torch.Generator().manual_seed(0)
    student, teacher = (
        torch.randn(*SHAPE, 6, generator=generator, dtype=torch.float64).log_softmax(-1)[..., :3] for _ in range(2)
    )
    given = replace(case(), teacher_candidate_logprobs=teacher)

    def loss(values: Tensor) -> Tensor:
        settings = {"direction": "forward_topk", "loss_agg_mode": mode}
        shifted = replace(given, candidate_logprobs=values)
        return run_loss("distillation", settings, shifted, prompt_group_ids=GROUPS).loss

    assert torch.autograd.gradcheck(loss, (student.clone().requires_grad_(),))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo", {"use_cispo_loss": True, "eps_clip": 0.1}),
        ("rollout_is", {"eps_clip": 0.3}),
        ("distillation", {"max_ratio": 1.1}),
    ],
)
@pytest.mark.parametrize("mode", list(Aggregation))
def test_losses_that_weigh_log_probs_have_the_weight_as_their_gradient(
    name: str, settings: dict[str, Any], mode: Aggregation
):
    """loss = sum c lp with c detached: the loss is recovered from the gradient, c from the other side."""
    given = two_policies(case())
    loss, gradient = gradient_of(name, settings | {"loss_agg_mode": mode}, given, prompt_group_ids=GROUPS)
    assert loss == pytest.approx(float((gradient * given.logprobs).sum()))
    assert gradient.any()


def test_the_reverse_kl_gradient_is_that_of_the_exact_kl_in_expectation():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(7, generator=generator, dtype=torch.float64).requires_grad_()
    teacher = torch.randn(7, generator=generator, dtype=torch.float64).log_softmax(-1)
    student = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((student.exp() * (student - teacher)).sum(), logits, retain_graph=True)
    expected = torch.zeros(7, dtype=torch.float64)
    for token in range(7):
        given = LossInputs(
            student[token].reshape(1, 1),
            torch.ones(1, 1, dtype=torch.float64),
            teacher_logprobs=teacher[token].reshape(1, 1),
        )
        (sampled,) = torch.autograd.grad(run_loss("distillation", {}, given).loss, logits, retain_graph=True)
        expected += student[token].detach().exp() * sampled
    assert torch.allclose(expected, exact)
