"""Log-probs at a temperature, exact entropy and candidate log-probs, against plain softmax over all logits."""

from typing import Any

import numpy as np
import pytest
import torch
from builders.train_batch import grouped_rows, request_of
from torch import Tensor

from drydock.engine.token_scores import score_logits, score_shared_logits
from drydock.engine.training import TrainingEngine
from drydock.errors import UserError


@pytest.fixture(scope="module")
def engine(tiny_model: str) -> TrainingEngine:
    return TrainingEngine(tiny_model, {"mb_spec": {"max_tokens_per_mb": 200}}, dtype="float32")


def log_softmax(engine: TrainingEngine, request: dict[str, Any], temperature: np.ndarray | float = 1.0) -> Tensor:
    """[B, T, vocab]"""
    ids, attention = (torch.from_numpy(request["kwargs"][key]) for key in ("input_ids", "attention_mask"))
    logits = engine.model(input_ids=ids, attention_mask=attention, use_cache=False).logits
    return (logits / torch.from_numpy(np.broadcast_to(temperature, ids.shape).copy())[..., None].float()).log_softmax(
        -1
    )


def real(request: dict[str, Any]) -> np.ndarray:
    """Positions with a next token."""
    attention = request["kwargs"]["attention_mask"]
    return np.pad(attention[:, 1:], ((0, 0), (0, 1))) != 0


def rows(seed: int = 5) -> list[Any]:
    return grouped_rows(np.random.default_rng(seed), groups=2, group_size=3, system=30, prompt=10, response=15)


def chosen(every: Tensor, request: dict[str, Any]) -> np.ndarray:
    ids = torch.from_numpy(np.roll(request["kwargs"]["input_ids"], -1, axis=1))
    return (every.gather(2, ids[..., None])[..., 0].detach().numpy()) * real(request)


@pytest.mark.parametrize(
    ("post", "keys"),
    [
        ("identity", set()),
        ("compute_logprobs", {"logprobs"}),
        ("compute_entropy", {"entropy"}),
        ("compute_entropy_and_logprobs", {"logprobs", "entropy"}),
        ("ap_compute_logprobs", {"logprobs", "entropy"}),
    ],
)
@pytest.mark.parametrize("per_position", [False, True])
def test_posts_answer_every_real_position(engine: TrainingEngine, post: str, keys: set[str], per_position: bool):
    request = request_of(rows(), post=[post])
    rng = np.random.default_rng(0)
    temperature = rng.uniform(0.5, 2.0, request["kwargs"]["input_ids"].shape) if per_position else 0.7
    request["kwargs"]["temperature"] = temperature
    outputs = engine.forward_backward(request)["post_process_outputs"]
    engine.model.zero_grad()
    assert outputs.keys() == keys
    every = log_softmax(engine, request, temperature)
    if "logprobs" in keys:
        assert np.abs(outputs["logprobs"] - chosen(every, request)).max() < 1e-5
    if "entropy" in keys:
        entropy = -(every.exp() * every).sum(-1).detach().numpy() * real(request)
        assert np.abs(outputs["entropy"] - entropy).max() < 1e-5


def test_forward_answers_the_same_at_the_same_temperature(engine: TrainingEngine):
    request = request_of(rows())
    kwargs = request["kwargs"] | {"temperature": 0.6}
    outputs = engine.forward({"kwargs": kwargs, "processing": {"post": "compute_entropy"}})["post_process_outputs"]
    assert np.abs(outputs["logprobs"] - chosen(log_softmax(engine, request, 0.6), request)).max() < 1e-5
    assert outputs["entropy"].shape == outputs["logprobs"].shape
    assert all(parameter.grad is None for parameter in engine.model.parameters())


def test_the_loss_is_on_log_probs_at_the_temperature(engine: TrainingEngine):
    request = request_of(rows(), config={"eps_clip": 0.3})
    every = log_softmax(engine, request, 0.5)
    request["context"]["old_log_probs_shifted"] = chosen(every, request)
    request["kwargs"]["temperature"] = np.asarray(0.5, np.float32)
    metrics = engine.forward_backward(request)["metrics"]
    engine.model.zero_grad()
    assert metrics["logprob_diff_max"] < 1e-5
    del request["kwargs"]["temperature"]
    assert engine.forward_backward(request)["metrics"]["logprob_diff_max"] > 0.01
    engine.model.zero_grad()


@pytest.mark.parametrize(
    ("temperature", "message"),
    [(0.0, "greedy"), (-1.0, "above 0"), ([1.0, 2.0], "shape"), (float("nan"), "not finite"), ("hot", "numbers")],
)
def test_a_temperature_that_means_nothing_is_refused(engine: TrainingEngine, temperature: Any, message: str):
    request = request_of(rows())
    request["kwargs"]["temperature"] = temperature
    with pytest.raises(UserError, match=message):
        engine.forward_backward(request)


def test_supervised_losses_take_no_temperature(engine: TrainingEngine):
    request = request_of(rows(), loss_fn="causal_cross_entropy")
    request["kwargs"]["temperature"] = 1.0
    engine.forward_backward(request)
    engine.model.zero_grad()
    request["kwargs"]["temperature"] = 0.9
    with pytest.raises(UserError, match="temperature must be 1 or absent with loss 'causal_cross_entropy'"):
        engine.forward_backward(request)


def test_the_entropy_bonus_reaches_the_weights(engine: TrainingEngine):
    """The gradient of entropy_coeff alone is that of minus the mean entropy, by autograd over plain logits."""
    request = request_of(rows(), advantages=[0.0] * 6, config={"entropy_coeff": 0.5})
    result = engine.forward_backward(request)
    ours = torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None])
    engine.model.zero_grad()
    every = log_softmax(engine, request)
    mask = torch.from_numpy(request["context"]["loss_mask"])
    entropy = (-(every.exp() * every).sum(-1) * mask).sum() / mask.sum()
    (-0.5 * entropy).backward()
    plain = torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None])
    engine.model.zero_grad()
    assert result["avg_loss"] == pytest.approx(-0.5 * entropy.item(), rel=1e-5)
    assert result["metrics"]["exact_entropy"] == pytest.approx(entropy.item(), rel=1e-5)
    assert float(ours.abs().max()) > 0
    assert float((ours - plain).abs().max() / plain.abs().max()) < 1e-5


def test_forward_distillation_reaches_the_weights(engine: TrainingEngine):
    """With all tokens but one as candidates, the loss is the exact forward KL to the teacher."""
    request = request_of(rows(), loss_fn="distillation", config={"direction": "forward_topk"})
    rng = np.random.default_rng(1)
    shape, vocab = request["kwargs"]["input_ids"].shape, engine.model.config.get_text_config().vocab_size
    teacher = torch.from_numpy(rng.normal(size=(*shape, vocab))).log_softmax(-1)
    request["context"] |= {
        "teacher_topk_ids_shifted": np.broadcast_to(np.arange(vocab - 1), (*shape, vocab - 1)),
        "teacher_topk_log_probs_shifted": teacher[..., :-1].numpy(),
    }
    result = engine.forward_backward(request)
    ours = torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None])
    engine.model.zero_grad()
    mask = torch.from_numpy(request["context"]["loss_mask"])
    kl = (teacher.exp() * (teacher - log_softmax(engine, request))).sum(-1)
    loss = (kl * mask).sum() / mask.sum()
    loss.backward()
    plain = torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None])
    engine.model.zero_grad()
    assert result["avg_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert float((ours - plain).abs().max() / plain.abs().max()) < 1e-4


def test_scores_have_the_gradient_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, generator=generator, dtype=torch.float64).requires_grad_()
    targets, candidates = torch.tensor([0, 4, 2]), torch.tensor([[1, 2], [0, 3], [4, 4]])
    temperature = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)

    def scores(values: Tensor) -> tuple[Tensor, ...]:
        return tuple(score_logits(values, targets, temperature, candidates, entropy=True).tensors())

    assert torch.autograd.gradcheck(scores, (logits,))


@pytest.mark.parametrize("same", [True, False])
def test_shared_positions_score_as_each_row_would(same: bool):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    targets = torch.tensor([[0, 4, 2], [1, 1, 3]])
    candidates = torch.randint(0, 5, (2, 3, 2), generator=generator)
    temperature = torch.tensor([[1.0, 0.5, 2.0], [1.0, 0.5, 2.0 if same else 0.1]], dtype=torch.float64)
    shared = score_shared_logits(logits, targets, temperature, candidates, entropy=True)
    for row in range(2):
        alone = score_logits(logits, targets[row], temperature[row], candidates[row], entropy=True)
        for ours, theirs in zip(shared.tensors(), alone.tensors(), strict=True):
            assert torch.allclose(ours[row], theirs)


def test_an_impossible_token_adds_nothing_to_the_entropy():
    logits = torch.tensor([[0.0, 0.0, -float("inf")]]).requires_grad_()
    entropy = score_logits(logits, torch.tensor([0]), None, None, entropy=True).entropy
    assert entropy is not None
    entropy.sum().backward()
    assert entropy.item() == pytest.approx(np.log(2))
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())
