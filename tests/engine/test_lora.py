"""LoRA through both engines: training, weight sync, checkpoints, export."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from builders.train_batch import Row, grouped_rows, request_of
from transformers import AutoModelForCausalLM

from drydock.engine.manifest import MARKER
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.types import SampleResult
from drydock.engine.weights import fingerprint, unique_weights
from drydock.errors import ConfigError, EngineError, UserError
from drydock.wire.rest import SamplingParams

LORA: dict[str, Any] = {"peft_type": "Lora", "r": 4, "lora_alpha": 16, "target_modules": "all-linear"}


def engine_of(model: str, **changes: Any) -> TrainingEngine:
    config = {"peft_config": LORA, "optimizer": {"lr": 1e-2}} | changes
    return TrainingEngine(model, config, seed=3)


def train(engine: TrainingEngine, steps: int, first: int = 0) -> list[float]:
    losses = []
    for seed in range(first, first + steps):
        rng = np.random.default_rng(seed)
        rows = grouped_rows(rng, groups=2, group_size=3, system=80, prompt=10)
        request = request_of(rows, advantages=rng.normal(size=len(rows)).tolist())
        losses.append(engine.forward_backward(request)["avg_loss"])
        engine.step()
    return losses


def logprobs(engine: TrainingEngine) -> np.ndarray:
    rows = grouped_rows(np.random.default_rng(9), groups=1, group_size=2)
    return engine.forward(request_of(rows))["post_process_outputs"]["logprobs"]


def sample(sampler: TorchSamplingEngine, prompt: list[int]) -> SampleResult:
    sampler.submit("a", prompt, SamplingParams(max_tokens=8, temperature=1.0, ignore_eos=True, seed=1))
    while sampler.has_work:
        for result in sampler.step():
            return result
    raise AssertionError


def check_sampler(sampler: TorchSamplingEngine, trainer: TrainingEngine) -> None:
    prompt = list(range(40, 60))
    result = sample(sampler, prompt)
    row: Row = (prompt + result.token_ids, [0] * len(prompt) + [1] * 8)
    trained = trainer.forward(request_of([row]))["post_process_outputs"]["logprobs"][0, len(prompt) - 1 : -1]
    assert np.abs(trained - np.asarray(result.logprobs)).max() < 1e-5


def test_a_new_adapter_changes_nothing_and_trains_nothing_else(tiny_model: str):
    adapted, whole = engine_of(tiny_model), TrainingEngine(tiny_model, {})
    assert np.array_equal(logprobs(adapted), logprobs(whole))
    before = fingerprint(unique_weights(adapted.model))
    start = logprobs(adapted)
    train(adapted, 2)
    assert fingerprint(unique_weights(adapted.model)) == before == fingerprint(unique_weights(whole.model))
    assert np.abs(logprobs(adapted) - start).max() > 1e-3
    assert adapted.prefix_sharing_off_because is None
    trained = {name for name, p in adapted.model.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trained)
    assert len(trained) == 2 * 2 * 7


def test_prefix_sharing_gives_the_same_gradients_even_if_the_first_keys_need_none(tiny_model: str):
    rows = grouped_rows(np.random.default_rng(0), groups=2, group_size=4, system=90, prompt=80)
    advantages = np.random.default_rng(0).normal(size=len(rows)).tolist()
    config = LORA | {"target_modules": ["o_proj", "down_proj"]}
    gradients = []
    for share in (True, False):
        engine = engine_of(tiny_model, peft_config=config, prefix_sharing=share)
        for name, parameter in engine.model.named_parameters():
            if "lora_B" in name:
                with torch.no_grad():
                    parameter.fill_(0.01)
        result = engine.forward_backward(request_of(rows, advantages=advantages))
        assert (result["metrics"]["prefix_sharing/computed_tokens"] < 1000) == share
        gradients.append(torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-5 * gradients[1].abs().max()


def test_the_adapter_alone_is_synced_and_the_sampler_computes_the_same(tiny_model: str, tmp_path: Path):
    trainer = engine_of(tiny_model)
    sampler = TorchSamplingEngine(tiny_model, {"peft_config": LORA})
    base = sampler.fingerprint
    for version in (1, 2):
        train(trainer, 2, first=2 * version)
        exported = trainer.export_weights(tmp_path / f"{version}.safetensors")
        assert exported.path.stat().st_size < 100_000
        sampler.load_weights(exported.path, policy_version=version, fingerprint=exported.fingerprint)
        assert sampler.fingerprint == exported.fingerprint != base
        check_sampler(sampler, trainer)
    merged = trainer.export_weights(tmp_path / "m.safetensors", "vllm")
    sampler.load_weights(merged.path, policy_version=3, fingerprint=merged.fingerprint)
    check_sampler(sampler, trainer)
    assert fingerprint(unique_weights(sampler.model)) == merged.fingerprint
    sampler.load_weights(exported.path, policy_version=4, fingerprint=exported.fingerprint)
    check_sampler(sampler, trainer)
    assert fingerprint(unique_weights(sampler.model)) == base, "the model of the start is under the adapter again"


def test_the_first_model_comes_back_under_an_adapter_only_where_it_is_still_there(tiny_model: str, tmp_path: Path):
    model = shutil.copytree(tiny_model, tmp_path / "model")
    trainer, sampler = engine_of(str(model)), TorchSamplingEngine(str(model), {})
    train(trainer, 1)
    adapter, merged = trainer.export_weights(tmp_path / "a"), trainer.export_weights(tmp_path / "m", "hf")
    sampler.load_weights(merged.path, policy_version=1, fingerprint=merged.fingerprint)
    other = TrainingEngine(tiny_model, {"optimizer": {"lr": 0.1}})
    train(other, 1)
    other.save(tmp_path / "other", "weights-only")
    (tmp_path / "other" / "model.safetensors").replace(model / "model.safetensors")
    with pytest.raises(EngineError, match="the model's files hold"):
        sampler.load_weights(adapter.path, policy_version=2, fingerprint=adapter.fingerprint)
    assert sampler.fingerprint == fingerprint(unique_weights(sampler.model)) == merged.fingerprint
    elsewhere = TorchSamplingEngine(str(model), {})
    with pytest.raises(EngineError, match="trained on other weights"):
        elsewhere.load_weights(adapter.path, policy_version=1, fingerprint=adapter.fingerprint)


def test_a_policy_can_have_an_adapter_from_the_start(tiny_model: str, tmp_path: Path):
    trainer = engine_of(tiny_model)
    train(trainer, 2)
    trainer.save(tmp_path / "adapter", "weights-only")
    sampler = TorchSamplingEngine(tiny_model, {"policy_adapter": str(tmp_path / "adapter")})
    check_sampler(sampler, trainer)
    (tmp_path / "adapter" / MARKER).unlink()
    sampler = TorchSamplingEngine(tiny_model, {"policy_adapter": str(tmp_path / "adapter")})
    check_sampler(sampler, trainer)
    with pytest.raises(EngineError, match="cannot be read"):
        TorchSamplingEngine(tiny_model, {"policy_adapter": str(tmp_path / "nothing")})


def test_what_a_sampler_did_not_ask_for_it_refuses(tiny_model: str, tmp_path: Path):
    trainer = engine_of(tiny_model)
    exported = trainer.export_weights(tmp_path / "a.safetensors")
    sampler = TorchSamplingEngine(tiny_model, {"peft_config": LORA | {"r": 2}})
    with pytest.raises(EngineError, match=r"inference_config\.peft_config"):
        sampler.load_weights(exported.path, policy_version=0, fingerprint=exported.fingerprint)
    with pytest.raises(EngineError, match="expected 000"):
        sampler.load_weights(exported.path, policy_version=0, fingerprint="0" * 32)


def test_a_resumed_adapter_continues_exactly(tiny_model: str, tmp_path: Path):
    scheduler = {"name": "cosine", "total_steps": 10, "warmup_steps": 3}
    whole = engine_of(tiny_model, scheduler=scheduler)
    losses = train(whole, 10)
    first = engine_of(tiny_model, scheduler=scheduler)
    early = train(first, 5)
    first.save(tmp_path / "cp", "resumable")
    second = TrainingEngine(tiny_model, first.config.model_dump(exclude_unset=True), seed=8)
    assert second.load(tmp_path / "cp")["global_steps"] == 5
    assert early + train(second, 5, first=5) == losses
    a, b = (engine.export_weights(tmp_path / name) for name, engine in (("a", whole), ("b", second)))
    assert a.fingerprint == b.fingerprint
    assert not (tmp_path / "cp" / "model.safetensors").exists()


def test_a_weights_only_checkpoint_is_a_peft_folder_or_merged(tiny_model: str, tmp_path: Path):
    engine = engine_of(tiny_model)
    train(engine, 2)
    engine.save(tmp_path / "adapter", "weights-only")
    engine.save(tmp_path / "merged", "weights-only", merge=True)
    ids = torch.tensor([list(range(30, 60))])
    with torch.no_grad():
        expected = engine.model(input_ids=ids).logits
        base = AutoModelForCausalLM.from_pretrained(tiny_model)
        loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
        assert torch.equal(loaded(input_ids=ids).logits, expected)
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
        assert (merged(input_ids=ids).logits - expected).abs().max() < 1e-4
    assert merged.lm_head.weight is merged.model.embed_tokens.weight
    resumed = engine_of(tiny_model)
    assert resumed.load(tmp_path / "adapter")["global_steps"] == 2
    assert np.array_equal(logprobs(resumed), logprobs(engine))


def test_checkpoints_that_do_not_go_with_the_job_are_refused_by_name(tiny_model: str, tmp_path: Path):
    adapted, whole = engine_of(tiny_model), TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-2}})
    train(adapted, 1)
    train(whole, 1)
    adapted.save(tmp_path / "a", "resumable")
    whole.save(tmp_path / "w", "resumable")
    with pytest.raises(UserError, match="trains all weights"):
        whole.load(tmp_path / "a")
    with pytest.raises(UserError, match="load it into a new job"):
        adapted.load(tmp_path / "w")
    with pytest.raises(UserError, match="peft_config"):
        engine_of(tiny_model, peft_config=LORA | {"r": 2}).load(tmp_path / "a")
    fresh = engine_of(tiny_model)
    assert fresh.load(tmp_path / "w")["global_steps"] == 0
    assert np.array_equal(logprobs(fresh), logprobs(whole))
    with pytest.raises(EngineError, match="trained on other weights"):
        fresh.load(tmp_path / "a")
    with pytest.raises(UserError, match="merge goes with weights-only"):
        adapted.save(tmp_path / "x", "resumable", merge=True)
    with pytest.raises(UserError, match="trains all weights"):
        whole.export_weights(tmp_path / "y", "lora")
    with pytest.raises(UserError, match="unknown weight_format"):
        whole.export_weights(tmp_path / "y", "gguf")


def test_an_adapter_learns(tiny_model: str):
    engine = engine_of(tiny_model, optimizer={"lr": 2e-2}, peft_config=LORA | {"r": 16, "lora_alpha": 32})
    rng = np.random.default_rng(0)
    rows: list[Row] = [([i, *rng.integers(0, 390, 9).tolist()], [0] + [1] * 9) for i in range(4)]
    losses = []
    for _ in range(40):
        losses.append(engine.forward_backward(request_of(rows, loss_fn="causal_cross_entropy"))["avg_loss"])
        engine.step()
    assert losses[-1] < 0.3 < 4 < losses[0]


def test_dropout_acts_on_gradients_only_and_resumes_exactly(tiny_model: str, tmp_path: Path):
    config = LORA | {"lora_dropout": 0.5}
    engine, resumed = (engine_of(tiny_model, peft_config=config) for _ in range(2))
    train(engine, 2)
    assert engine.prefix_sharing_off_because == "lora_dropout"
    assert np.array_equal(logprobs(engine), logprobs(engine))
    engine.save(tmp_path / "cp")
    expected = train(engine, 2, first=2)
    resumed.load(tmp_path / "cp")
    assert train(resumed, 2, first=2) == expected
    assert np.array_equal(logprobs(resumed), logprobs(engine))


def test_an_adapter_on_a_bfloat16_model_is_float32_and_recomputed_activations_change_nothing(
    tiny_model: str, tmp_path: Path
):
    engines = [
        TrainingEngine(
            tiny_model,
            {"peft_config": LORA, "optimizer": {"lr": 1e-2}, "activation_checkpointing": recompute},
            dtype="bfloat16",
            seed=3,
        )
        for recompute in (False, True)
    ]
    assert {p.dtype for p in engines[0].model.parameters() if p.requires_grad} == {torch.float32}
    assert engines[1].prefix_sharing_off_because is None
    for engine in engines:
        train(engine, 3)
    exported = [engine.export_weights(tmp_path / f"{i}.safetensors") for i, engine in enumerate(engines)]
    assert exported[0].fingerprint == exported[1].fingerprint
    sampler = TorchSamplingEngine(tiny_model, {}, dtype="bfloat16")
    sampler.load_weights(exported[0].path, policy_version=3, fingerprint=exported[0].fingerprint)
    prompt = list(range(40, 60))
    result = sample(sampler, prompt)
    row: Row = (prompt + result.token_ids, [0] * len(prompt) + [1] * 8)
    trained = engines[0].forward(request_of([row]))["post_process_outputs"]["logprobs"][0, len(prompt) - 1 : -1]
    assert np.abs(trained - np.asarray(result.logprobs)).max() < 0.05
    wide = TorchSamplingEngine(tiny_model, {}, dtype="float32")
    with pytest.raises(EngineError, match="same dtype"):
        wide.load_weights(exported[0].path, policy_version=3, fingerprint=exported[0].fingerprint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "LORA"}, "peft_type must be 'Lora'"),
        ({"task_type": "SEQ_CLS"}, "task_type must be 'CAUSAL_LM'"),
        ({"r": 0}, r"peft_config\.r"),
        ({"r": 2.0}, r"peft_config\.r"),
        ({"lora_alpha": -1}, "lora_alpha"),
        ({"lora_dropout": 1.5}, "lora_dropout"),
        ({"bias": "all"}, "only bias='none'"),
        ({"target_modules": []}, "name target_modules, target_parameters, or both"),
        ({"target_modules": [""]}, "non-empty"),
        ({"use_dora": True}, r"peft_config\.use_dora"),
        ({"target_modules": ["nowhere"]}, "does not fit"),
        ({"target_modules": ["lm_head"]}, "shares its weight"),
    ],
)
def test_settings_are_checked(tiny_model: str, change: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        engine_of(tiny_model, peft_config=LORA | change)
