"""No loss depends on how its call is laid out: micro-batches, shared prefixes, order of rows, padding."""

from typing import Any

import numpy as np
import pytest
import torch
from builders.loss_request import CASES, loss_request, relaid
from builders.train_batch import grouped_rows
from torch import Tensor

from drydock.engine.training import TrainingEngine
from drydock.losses import LOSSES

LAYOUTS = [(10_000, True), (10_000, False), (150, True), (150, False)]


def gradients(engine: TrainingEngine) -> Tensor:
    parts = [p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in engine.model.parameters()]
    gradient = torch.cat(parts).clone()
    engine.model.zero_grad(set_to_none=True)
    return gradient


@pytest.fixture(scope="module")
def engines(tiny_model: str) -> list[TrainingEngine]:
    return [
        TrainingEngine(tiny_model, {"mb_spec": {"max_tokens_per_mb": tokens}, "prefix_sharing": share}, dtype="float32")
        for tokens, share in LAYOUTS
    ]


def call(case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request, and the same one laid out differently."""
    rng = np.random.default_rng(sorted(CASES).index(case))
    request = loss_request(case, grouped_rows(rng, groups=2, group_size=3, system=30, prompt=20, response=12), rng)
    return request, relaid(request, rng.permutation(6).tolist(), 5)


@pytest.mark.parametrize("case", list(CASES))
def test_the_layout_changes_nothing(engines: list[TrainingEngine], case: str):
    request, other = call(case)
    whole, *others = engines
    expected = whole.forward_backward(request)
    gradient = gradients(whole)
    assert gradient.any()
    for engine, given in ((whole, other), *((engine, r) for engine in others for r in (request, other))):
        result = engine.forward_backward(given)
        assert result["avg_loss"] == pytest.approx(expected["avg_loss"], rel=1e-6, abs=1e-6)
        assert float((gradients(engine) - gradient).abs().max() / gradient.abs().max()) <= 5e-6
        for name, number in expected["metrics"].items():
            if not name.startswith("prefix_sharing/"):
                assert result["metrics"][name] == pytest.approx(number, rel=2e-6, abs=2e-6), name


def test_every_loss_is_in_the_list():
    assert {name for name, _ in CASES.values()} | {"sft_ce", "ap_grpo_echo_v1"} == set(LOSSES)
