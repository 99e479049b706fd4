from typing import Any

import numpy as np
import pytest
import torch
from builders.train_batch import grouped_rows, request_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from drydock.engine.training import TrainingEngine
from drydock.errors import ConfigError, EngineError, UserError
from drydock.losses import Aggregation, LossInputs, count_denominators, resolve_loss


def gradients(engine: TrainingEngine) -> Tensor:
    parts = [p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in engine.model.parameters()]
    gradient = torch.cat(parts).clone()
    engine.optimizer.zero_grad(set_to_none=True)
    return gradient


def reference(engine: TrainingEngine, request: dict[str, Any]) -> tuple[float, Tensor]:
    """Loss and gradient of one plain padded forward pass over the whole call, straight from the loss function."""
    ids = torch.from_numpy(request["kwargs"]["input_ids"])
    context = {key: torch.from_numpy(value).float() for key, value in request["context"].items()}
    mask = context["loss_mask"]
    logits = engine.model(
        input_ids=ids, attention_mask=torch.from_numpy(request["kwargs"]["attention_mask"]), use_cache=False
    ).logits
    logprobs = torch.zeros(ids.shape)
    logprobs[:, :-1] = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]
    entry, config = resolve_loss(request["processing"]["loss_fn"], request["processing"]["config"])
    weights = context.get("sequence_loss_weights")
    given_inputs = LossInputs(
        torch.where(mask != 0, logprobs, 0.0),
        mask,
        context.get("advantages"),
        context.get("old_log_probs_shifted"),
        weights,
    )
    fixed = {key: getattr(config, key, None) for key in ("batch_num_tokens", "global_batch_size")}
    loss = entry.function(given_inputs, config, count_denominators(mask, weights, **fixed)).loss
    loss.backward()
    return loss.item(), gradients(engine)


def close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return float((a - b).abs().max()) <= tolerance * max(float(b.abs().max()), 1e-6)


@pytest.fixture(scope="module")
def engine(tiny_model: str) -> TrainingEngine:
    return TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-3}})


@pytest.fixture(scope="module")
def engines(tiny_model: str) -> list[TrainingEngine]:
    """The same policy with wide and narrow micro-batches, with and without prefix sharing."""
    return [
        TrainingEngine(tiny_model, {"mb_spec": {"max_tokens_per_mb": tokens}, "prefix_sharing": share})
        for tokens in (10_000, 300)
        for share in (True, False)
    ]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**16),
    level=st.sampled_from(["token", "sequence"]),
    mode=st.sampled_from([mode for mode in Aggregation if mode is not Aggregation.PROMPT_MEAN]),
    fixed=st.booleans(),
    pads=st.integers(0, 9),
)
def test_micro_batches_prefix_sharing_and_row_order_change_nothing(
    engines: list[TrainingEngine], seed: int, level: str, mode: Aggregation, fixed: bool, pads: int
):
    rng = np.random.default_rng(seed)
    rows = grouped_rows(rng, groups=3, group_size=4, system=90, prompt=80, response=24)
    width = max(len(ids) for ids, _ in rows)
    config = {"importance_sampling_level": level, "loss_agg_mode": mode.value, "eps_clip": 0.1}
    if fixed:
        config |= {"batch_num_tokens": 100, "global_batch_size": 5}
    extras = {
        "advantages": rng.normal(size=len(rows)).tolist(),
        "old_logprobs": [rng.normal(-6, 0.3, len(ids)).tolist() for ids, _ in rows],
        "row_weights": rng.uniform(0.2, 1, len(rows)).tolist(),
    }
    loss, gradient = reference(engines[0], request_of(rows, config=config, width=width, **extras))
    # The loss is a difference of large terms: rounding is relative to their size, not to what is left of them.
    sizes = {**extras, "advantages": [abs(value) for value in extras["advantages"]]}
    size = abs(reference(engines[0], request_of(rows, config=config, width=width, **sizes))[0])
    order = rng.permutation(len(rows))
    shuffled = {key: [values[i] for i in order] for key, values in extras.items()}
    # In the -norm mode the padded width is part of the objective.
    extra_width = 0 if mode is Aggregation.SEQ_MEAN_TOKEN_SUM_NORM else pads
    request = request_of([rows[i] for i in order], config=config, width=width + extra_width, pad_id=5, **shuffled)
    for engine in engines:
        result = engine.forward_backward(request)
        found = gradients(engine)
        assert result["avg_loss"] == pytest.approx(loss, rel=1e-6, abs=1e-6 * max(size, 1.0))
        assert close(found, gradient, 1e-5)


def test_prefix_sharing_computes_fewer_tokens_and_the_same_logprobs(tiny_model: str):
    rows = grouped_rows(np.random.default_rng(0), groups=4, group_size=6, system=100, prompt=120, response=30)
    request = request_of(rows, post=["compute_logprobs"], old_logprobs=[[-6.0] * len(ids) for ids, _ in rows])
    shared = TrainingEngine(tiny_model, {})
    unshared = TrainingEngine(tiny_model, {"prefix_sharing": False})
    ours, plain = shared.forward_backward(request), unshared.forward_backward(request)
    assert np.abs(ours["post_process_outputs"]["logprobs"] - plain["post_process_outputs"]["logprobs"]).max() < 1e-5
    assert close(gradients(shared), gradients(unshared), 1e-5)
    assert ours["metrics"]["prefix_sharing/computed_tokens"] < 0.45 * ours["metrics"]["prefix_sharing/row_tokens"]
    assert plain["metrics"]["prefix_sharing/off/switched_off"] == 1
    assert not any(name.startswith("prefix_sharing/off") for name in ours["metrics"])


def test_trained_positions_inside_a_shared_prefix_count_for_every_row_that_trains_them(engines: list[TrainingEngine]):
    rng = np.random.default_rng(4)
    rows = grouped_rows(rng, groups=1, group_size=5, system=150, prompt=100, response=9)
    for index, (_, mask) in enumerate(rows):
        mask[120:140] = [1] * 20 if index in (1, 3) else [0] * 20
    config = {"importance_sampling_level": "token", "eps_clip": 0.3}
    extras = {
        "advantages": [1.0, -0.5, 2.0, 0.7, -1.0],
        "old_logprobs": [rng.normal(-6, 0.1, len(ids)).tolist() for ids, _ in rows],
    }
    request = request_of(rows, config=config, **extras)
    loss, gradient = reference(engines[0], request)
    result = engines[0].forward_backward(request)
    assert result["metrics"]["prefix_sharing/computed_tokens"] < 400
    assert result["avg_loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert close(gradients(engines[0]), gradient, 1e-5)


def test_a_row_that_is_a_prefix_of_the_others(engines: list[TrainingEngine]):
    ids = np.random.default_rng(5).integers(0, 390, 300).tolist()
    rows = [(ids[:n], [0] * (n - 3) + [1] * 3) for n in (200, 300, 201, 300)]
    request = request_of(rows, loss_fn="causal_cross_entropy")
    loss, gradient = reference(engines[0], request)
    assert engines[0].forward_backward(request)["avg_loss"] == pytest.approx(loss, rel=1e-6)
    assert close(gradients(engines[0]), gradient, 1e-5)


def test_gradients_accumulate_until_the_step(tiny_model: str):
    rows = grouped_rows(np.random.default_rng(1))
    config = {"batch_num_tokens": 100.0}
    once, twice = TrainingEngine(tiny_model, {}), TrainingEngine(tiny_model, {})
    once.forward_backward(request_of(rows, config=config))
    twice.forward_backward(request_of(rows[:5], config=config))
    twice.forward_backward(request_of(rows[5:], config=config))
    assert once.step(1e-3)["metrics"]["grad_norm"] == pytest.approx(twice.step(1e-3)["metrics"]["grad_norm"], rel=1e-5)
    assert twice.global_steps == 1
    with pytest.raises(UserError, match="no forward-backward"):
        once.step()


def test_a_given_learning_rate_stays(tiny_model: str):
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 5e-4}})
    request = request_of(grouped_rows(np.random.default_rng(1), groups=1))
    rates = []
    for rate in (None, 1e-5, None):
        engine.forward_backward(request)
        rates.append(engine.step(rate)["last_lr"])
    assert rates == [5e-4, 1e-5, 1e-5]


def test_clipping_bounds_the_gradient_and_reports_the_norm_before(tiny_model: str):
    request = request_of(grouped_rows(np.random.default_rng(1)), advantages=[100.0] * 12)
    free = TrainingEngine(tiny_model, {"gradient_clipping": None})
    free.forward_backward(request)
    norm = float(gradients(free).norm())
    clipped = TrainingEngine(tiny_model, {"gradient_clipping": 0.01})
    clipped.forward_backward(request)
    assert clipped.step(0.0)["metrics"]["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_labels_in_either_alignment_train_the_next_token(engine: TrainingEngine):
    ids = np.random.default_rng(2).integers(0, 390, (2, 12))
    attention = np.ones_like(ids)
    attention[1, 9:] = 0
    own = np.where(attention == 1, ids, -100)
    own[:, :4] = -100
    shifted = np.full_like(own, -100)
    shifted[:, :-1] = own[:, 1:]
    losses = [
        engine.forward_backward({"kwargs": {"input_ids": ids, "attention_mask": attention, "labels": labels}})
        for labels in (own, shifted)
    ]
    expected = engine.model(
        input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(attention), labels=torch.from_numpy(own)
    ).loss.item()
    assert [loss["avg_loss"] for loss in losses] == pytest.approx([expected] * 2, rel=1e-5)
    assert losses[0]["metrics"]["tokens"] == 8 + 5
    gradients(engine)


def test_an_empty_mask_is_a_call_without_gradient(tiny_model: str):
    engine = TrainingEngine(tiny_model, {"optimizer": {"weight_decay": 0.0}})
    rows = [(ids, [0] * len(ids)) for ids, _ in grouped_rows(np.random.default_rng(3))]
    assert engine.forward_backward(request_of(rows))["avg_loss"] == 0
    assert engine.step()["metrics"]["grad_norm"] == 0


def test_a_loss_that_is_not_finite_drops_the_gradients(tiny_model: str):
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 0.1}})
    request = request_of(grouped_rows(np.random.default_rng(1), groups=1))
    engine.forward_backward(request)
    with torch.no_grad():
        engine.model.get_input_embeddings().weight[5] = float("nan")
    with pytest.raises(EngineError, match="dropped"):
        engine.forward_backward(request)
    with pytest.raises(UserError, match="no forward-backward"):
        engine.step()


def broken(change: dict[str, Any], part: str | None = "kwargs") -> dict[str, Any]:
    request = request_of(grouped_rows(np.random.default_rng(1), groups=1))
    if part is None:
        return request | change
    return request | {part: request[part] | change}


SHAPE = request_of(grouped_rows(np.random.default_rng(1), groups=1))["kwargs"]["input_ids"].shape


@pytest.mark.parametrize(
    ("request_given", "message"),
    [
        (broken({"input_ids": None}), "input_ids is missing"),
        (broken({"input_ids": np.zeros(7, int)}), "two-dimensional"),
        (broken({"input_ids": np.zeros(SHAPE)}), "integers"),
        (broken({"input_ids": np.full(SHAPE, 400)}), "outside the vocabulary"),
        (broken({"attention_mask": np.zeros((1, 1))}), "shape"),
        (broken({"attention_mask": np.eye(*SHAPE)}), "row 1 is not left-aligned"),
        (broken({"position_ids": np.full(SHAPE, 3)}), "position_ids"),
        (broken({"temperature": np.zeros(SHAPE)}), "temperature must be above 0"),
        (broken({"labels": np.full(SHAPE, -100)}), "labels"),
        (broken({"inputs_embeds": np.zeros(3)}), "inputs_embeds"),
        (broken({"loss_mask": np.ones(SHAPE)}, "context"), "predicts no real token"),
        (broken({"loss_mask": None}, "context"), "loss_mask is missing"),
        (broken({"advantages": None}, "context"), "advantages is missing"),
        (broken({"advantages": np.full(SHAPE, np.nan)}, "context"), "not finite"),
        (broken({"old_log_probs": np.zeros(SHAPE)}, "context"), "send old_log_probs_shifted"),
        (broken({"teacher_log_probs_shifted": np.zeros(SHAPE)}, "context"), "is not read by loss 'grpo'"),
        (broken({"post": ["compute_everything"]}, "processing"), "compute_everything"),
        (broken({"router_replay": {"a": 1}}, None), "router_replay"),
        (broken({"processing": None}, None), "labels is missing"),
    ],
)
def test_a_bad_request_is_refused_by_name_before_anything_is_computed(
    engine: TrainingEngine, request_given: dict[str, Any], message: str
):
    with pytest.raises(UserError, match=message):
        engine.forward_backward(request_given)


def test_a_row_longer_than_max_seq_len_is_refused(tiny_model: str):
    engine = TrainingEngine(tiny_model, {"max_seq_len": 50})
    with pytest.raises(UserError, match="max_seq_len 50"):
        engine.forward_backward(request_of(grouped_rows(np.random.default_rng(1), groups=1)))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"optimizer": {"name": "Lion"}}, "known: AdamW, AdamW_8bit, SGD"),
        ({"optimizer": {"name": "SGD", "betas": [0.9, 0.9]}}, "'betas' has no meaning for SGD"),
        ({"optimizer": {"momentum": 0.9}}, "'momentum' has no meaning for AdamW"),
        ({"optimizer": {"name": "AdamW_8bit"}}, "needs the package bitsandbytes"),
        ({"scheduler": {"name": "cosine"}}, "a cosine schedule needs total_steps"),
        ({"scheduler": {"name": "linear", "total_steps": 5, "warmup_steps": 5}}, "greater than warmup_steps"),
        ({"scheduler": {"total_steps": 5}}, "no meaning for a constant schedule"),
        ({"scheduler": {"warmup": 5}}, "training_config.scheduler.warmup"),
        ({"optimizer": {"learning_rate": 1.0}}, "training_config.optimizer.learning_rate"),
        ({"mb_spec": {"max_tokens_per_mb": 0}}, "max_tokens_per_mb"),
        ({"gradient_cliping": 1.0}, "did you mean 'gradient_clipping'"),
    ],
)
def test_settings_are_checked(tiny_model: str, config: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        TrainingEngine(tiny_model, config)


def test_keys_for_other_back_ends_pass(tiny_model: str):
    engine = TrainingEngine(tiny_model, {"model_provider": "liger", "n_gpus": 1, "ds_config": {"x": 1}, "ep_size": 1})
    assert engine.config.gradient_clipping == 1.0


def test_a_missing_model_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        TrainingEngine(str(tmp_path / "nowhere"), {})
    with pytest.raises(UserError, match=r"no config\.json"):
        TrainingEngine(str(tmp_path), {})
