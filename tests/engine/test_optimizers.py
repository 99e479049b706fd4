"""Schedules, optimizers, precision and recomputation of a training engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders.train_batch import Row, grouped_rows, request_of

from drydock.engine.optimizer_settings import ScheduleConfig
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.schedules import rate_factor
from drydock.engine.training import TrainingEngine
from drydock.engine.weights import fingerprint, unique_weights
from drydock.errors import EngineError
from drydock.wire.rest import SamplingParams


def batch(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows = grouped_rows(rng, groups=2, group_size=3, system=80, prompt=10)
    return request_of(rows, advantages=rng.normal(size=len(rows)).tolist())


def train(engine: TrainingEngine, seeds: range) -> list[tuple[float, float]]:
    reports = []
    for seed in seeds:
        engine.forward_backward(batch(seed))
        result = engine.step()
        reports.append((result["last_lr"], result["metrics"]["grad_norm"]))
    return reports


def factors(count: int, **settings: Any) -> list[float]:
    schedule = ScheduleConfig.model_validate(settings)
    return [rate_factor(schedule, step) for step in range(count)]


def test_schedules_have_the_values_of_their_formulas():
    assert factors(3) == [1, 1, 1]
    assert factors(5, warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1]
    assert factors(7, name="linear", total_steps=5) == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0, 0])
    warm = factors(7, name="linear", warmup_steps=2, total_steps=6, min_lr_ratio=0.2)
    assert warm == pytest.approx([0.5, 1, 1, 0.8, 0.6, 0.4, 0.2])
    cosine = factors(6, name="cosine", total_steps=4, min_lr_ratio=0.1)
    assert cosine == pytest.approx([1, 0.1 + 0.9 * (1 + 0.5**0.5) / 2, 0.55, 0.1 + 0.9 * (1 - 0.5**0.5) / 2, 0.1, 0.1])


def test_a_rate_given_with_a_step_wins_over_the_schedule_from_then_on(tiny_model: str):
    scheduler = {"name": "linear", "warmup_steps": 2, "total_steps": 6}
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-3}, "scheduler": scheduler})
    rates = []
    for rate in (None, None, None, 5e-5, None):
        engine.forward_backward(batch(0))
        rates.append(engine.step(rate)["last_lr"])
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 5e-5, 5e-5])


def test_sgd_takes_the_step_of_its_formula(tiny_model: str):
    settings = {"name": "sgd", "lr": 0.5, "momentum": 0.9, "weight_decay": 0.0}
    engine = TrainingEngine(tiny_model, {"optimizer": settings, "gradient_clipping": None})
    weight = engine.model.model.layers[0].self_attn.q_proj.weight
    expected, velocity = weight.detach().clone(), torch.zeros_like(weight)
    for seed in range(3):
        engine.forward_backward(batch(seed))
        velocity = 0.9 * velocity + weight.grad
        expected = expected - 0.5 * velocity
        engine.step()
    assert torch.allclose(weight, expected, atol=1e-7)


CONFIGS: dict[str, dict[str, Any]] = {
    "adamw": {"scheduler": {"name": "cosine", "warmup_steps": 3, "total_steps": 9}},
    "sgd": {"optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True}},
    "8-bit": {"optimizer": {"name": "AdamW_8bit", "lr": 3e-3}},
    "bfloat16": {"activation_checkpointing": True},
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_ten_steps_are_five_saved_and_five_more_bit_for_bit(name: str, tiny_model: str, tmp_path: Path):
    if name == "8-bit":
        pytest.importorskip("bitsandbytes", reason="needs the extra bitsandbytes")
    config = {"optimizer": {"lr": 3e-3}} | CONFIGS[name]
    dtype = "bfloat16" if name == "bfloat16" else None
    whole, first, second = (TrainingEngine(tiny_model, config, seed=seed, dtype=dtype) for seed in range(3))
    expected = train(whole, range(10))
    early = train(first, range(5))
    first.save(tmp_path / "cp")
    assert second.load(tmp_path / "cp")["global_steps"] == 5
    assert early + train(second, range(5, 10)) == expected
    assert fingerprint(unique_weights(second.model)) == fingerprint(unique_weights(whole.model))


def test_a_resumed_engine_keeps_a_rate_that_a_step_named(tiny_model: str, tmp_path: Path):
    engine, other = (TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-3}}) for _ in range(2))
    engine.forward_backward(batch(0))
    engine.step(7e-5)
    engine.save(tmp_path / "cp")
    other.load(tmp_path / "cp")
    assert [rate for rate, _ in train(other, range(1, 2))] == [7e-5]
    third = TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-3}})
    third.load(tmp_path / "cp", optimizer_states=False)
    assert third.global_steps == 1
    assert [rate for rate, _ in train(third, range(1, 2))] == [1e-3]


def test_what_another_kind_of_trainer_saved_is_refused_before_anything_changes(tiny_model: str, tmp_path: Path):
    TrainingEngine(tiny_model, {}).save(tmp_path / "cp")
    sgd = TrainingEngine(tiny_model, {"optimizer": {"name": "SGD"}})
    narrow = TrainingEngine(tiny_model, {}, dtype="bf16")
    train(sgd, range(1))
    before = fingerprint(unique_weights(sgd.model))
    with pytest.raises(EngineError, match="optimizer adamw, this job has sgd"):
        sgd.load(tmp_path / "cp")
    assert (fingerprint(unique_weights(sgd.model)), sgd.global_steps) == (before, 1)
    with pytest.raises(EngineError, match="another dtype"):
        narrow.load(tmp_path / "cp")
    assert sgd.load(tmp_path / "cp", optimizer_states=False)["global_steps"] == 0


def test_bfloat16_keeps_updates_that_its_own_resolution_would_lose(tiny_model: str):
    """The norms begin at 1, where bfloat16 has steps of 1/128: thirty small updates reach only the masters."""
    config = {"optimizer": {"name": "SGD", "lr": 1e-4, "weight_decay": 0.0}, "gradient_clipping": None}
    narrow, wide = TrainingEngine(tiny_model, config, dtype="bfloat16"), TrainingEngine(tiny_model, config)
    for _ in range(30):
        for engine in (narrow, wide):
            engine.forward_backward(batch(0))
            engine.step()
    name = "model.norm.weight"
    assert all(p.dtype == torch.float32 for group in narrow.optimizer.param_groups for p in group["params"])
    assert torch.equal(narrow.model.get_parameter(name), torch.ones(64, dtype=torch.bfloat16))
    moved = wide.model.get_parameter(name).detach() - 1
    order = [n for n, p in narrow.model.named_parameters() if p.ndim < 2]
    kept = narrow.optimizer.param_groups[1]["params"][order.index(name)].detach() - 1
    assert torch.nn.functional.cosine_similarity(kept, moved, dim=0) > 0.95
    assert float(kept.norm()) == pytest.approx(float(moved.norm()), rel=0.1)


def test_bfloat16_sampler_and_trainer_agree_and_learn(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 5e-3}}, dtype="bfloat16")
    assert engine.model(input_ids=torch.tensor([[1, 2]])).logits.dtype == torch.float32
    rng = np.random.default_rng(0)
    rows: list[Row] = [([i, *rng.integers(0, 390, 9).tolist()], [0] + [1] * 9) for i in range(4)]
    losses = []
    for _ in range(40):
        losses.append(engine.forward_backward(request_of(rows, loss_fn="causal_cross_entropy"))["avg_loss"])
        engine.step()
    assert losses[-1] < 0.2 < 4 < losses[0]
    exported = engine.export_weights(tmp_path / "w.safetensors")
    sampler = TorchSamplingEngine(tiny_model, {}, dtype="bfloat16")
    sampler.load_weights(exported.path, policy_version=40, fingerprint=exported.fingerprint)
    sampler.submit("a", rows[0][0][:1], SamplingParams(max_tokens=9, temperature=0, ignore_eos=True))
    while sampler.has_work:
        for result in sampler.step():
            assert result.token_ids == rows[0][0][1:]
            trained = engine.forward(request_of(rows[:1]))["post_process_outputs"]["logprobs"][0, :-1]
            assert np.abs(trained - np.asarray(result.logprobs)).max() < 0.05


@pytest.mark.parametrize("share", [True, False])
def test_recomputed_activations_give_the_same_gradients(tiny_model: str, share: bool):
    gradients, saved = [], []
    for recompute in (False, True):
        engine = TrainingEngine(tiny_model, {"activation_checkpointing": recompute, "prefix_sharing": share})
        assert (engine.prefix_sharing_off_because is None) == share
        kept = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            engine.forward_backward(batch(1))
        saved.append(kept)
        gradients.append(torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None]))
    assert torch.equal(gradients[0], gradients[1])
    assert saved[1] < 0.7 * saved[0]
