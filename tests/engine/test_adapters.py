"""Several LoRA adapters of one base in one sampling engine."""

import gc
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from builders.train_batch import request_of
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from drydock.engine.decoder import SlotDecoder
from drydock.engine.manifest import MARKER
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.types import SampleResult
from drydock.errors import EngineError, UserError
from drydock.wire.rest import SamplingParams

PROMPT = list(range(40, 100))
TARGETS = {"one": "all-linear", "two": ["q_proj", "down_proj"]}


@pytest.fixture(scope="module")
def trainers(tiny_model: str) -> dict[str, TrainingEngine]:
    """LoRA trainers whose adapters differ, each a few steps on."""
    made = {}
    for seed, (name, targets) in enumerate(TARGETS.items()):
        peft = {"peft_type": "Lora", "r": 4, "lora_alpha": 32, "target_modules": targets}
        trainer = TrainingEngine(tiny_model, {"optimizer": {"lr": 0.02}, "peft_config": peft}, seed=seed)
        for step in range(3):
            row = np.random.default_rng(10 * seed + step).integers(0, 390, 60).tolist()
            trainer.forward_backward(request_of([(row, [1] * 60)], loss_fn="causal_cross_entropy"))
            trainer.step()
        made[name] = trainer
    return made


@pytest.fixture(scope="module")
def files(trainers: dict[str, TrainingEngine], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: trainer.export_weights(folder / name, "lora").path for name, trainer in trainers.items()}


def finish(engine: TorchSamplingEngine) -> dict[str, SampleResult]:
    results: dict[str, SampleResult] = {}
    while engine.has_work:
        results |= {result.request_id: result for result in engine.step()}
    return results


def check(model: torch.nn.Module, result: SampleResult, prompt: list[int]) -> None:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + result.token_ids]), use_cache=False).logits[0]
    expected = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(result.token_ids)[:, None])[:, 0]
    assert np.abs(np.asarray(result.logprobs) - expected.numpy()).max() < 1e-4


@pytest.mark.parametrize("ragged", [True, False])
def test_rows_of_different_adapters_run_together_each_with_its_own(
    tiny_model: str,
    trainers: dict[str, TrainingEngine],
    files: dict[str, Path],
    ragged: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    if not ragged:
        monkeypatch.setattr("drydock.engine.decoder.SUPPORTED_LAYERS", frozenset())
    engine = TorchSamplingEngine(tiny_model, {"max_running_rows": 6})
    assert isinstance(engine._decoder, SlotDecoder) == ragged
    base = TrainingEngine(tiny_model, {}).model
    for name, path in files.items():
        engine.load_adapter(name, path)
    assert set(engine.adapters) == {"one", "two"}
    models = {"one": trainers["one"].model, "two": trainers["two"].model, None: base, "base": base}
    rng = np.random.default_rng(0)
    prompts, names = {}, {}
    for turn in range(3):
        for i, name in enumerate([*models, "one", "two"]):
            key = f"{turn}/{i}"
            prompts[key] = PROMPT + rng.integers(0, 390, int(rng.integers(1, 30))).tolist()
            names[key] = name
            params = SamplingParams(max_tokens=int(rng.integers(2, 12)), adapter=name, ignore_eos=True)
            engine.submit(key, prompts[key], params, f"key{i % 2}")
    results = finish(engine)
    assert len(results) == 18
    for key, result in results.items():
        check(models[names[key]], result, prompts[key])
    assert engine.stats["cached_tokens"] > 0


def test_a_synced_adapter_is_the_policy_beside_named_ones(
    tiny_model: str, trainers: dict[str, TrainingEngine], files: dict[str, Path], tmp_path: Path
):
    engine = TorchSamplingEngine(tiny_model, {})
    engine.load_adapter("one", files["one"])
    engine.submit("flying", PROMPT, SamplingParams(max_tokens=9, ignore_eos=True, adapter="one"))
    engine.submit("policy", PROMPT, SamplingParams(max_tokens=9, ignore_eos=True))
    engine.step()
    exported = trainers["two"].export_weights(tmp_path / "two", "lora")
    engine.load_weights(exported.path, policy_version=5, fingerprint=exported.fingerprint)
    engine.submit("base", PROMPT, SamplingParams(max_tokens=9, ignore_eos=True, adapter="base"))
    results = finish(engine)
    check(trainers["one"].model, results["flying"], PROMPT)
    check(TrainingEngine(tiny_model, {}).model, results["base"], PROMPT)
    assert len(results["policy"].token_ids) == 9
    engine.submit("after", PROMPT, SamplingParams(max_tokens=9, ignore_eos=True))
    after = finish(engine)["after"]
    check(trainers["two"].model, after, PROMPT)
    assert after.policy_version == 5


def test_dropped_and_replaced_adapters(tiny_model: str, trainers: dict[str, TrainingEngine], files: dict[str, Path]):
    engine = TorchSamplingEngine(tiny_model, {})
    engine.load_adapter("a", files["one"])
    engine.submit("first", PROMPT, SamplingParams(max_tokens=50, ignore_eos=True, adapter="a"))
    engine.step()
    engine.load_adapter("a", files["two"])
    engine.submit("second", PROMPT, SamplingParams(max_tokens=5, ignore_eos=True, adapter="a"))
    while "second" not in (done := {result.request_id: result for result in engine.step()}):
        pass
    check(trainers["two"].model, done["second"], PROMPT)
    assert engine.drop_adapter("a")
    assert not engine.drop_adapter("a")
    failed = finish(engine)["first"]
    assert failed.finish_reason == "error"
    assert "adapter 'a' is not loaded" in str(failed.error)
    with pytest.raises(UserError, match="known: base"):
        engine.submit("late", PROMPT, SamplingParams(adapter="a"))


def test_checkpoints_and_peft_folders_are_served(tiny_model: str, trainers: dict[str, TrainingEngine], tmp_path: Path):
    engine = TorchSamplingEngine(tiny_model, {})
    trainers["one"].save(tmp_path / "cp", "weights-only")
    engine.load_adapter("checkpoint", tmp_path / "cp")
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (plain / name).write_bytes((tmp_path / "cp" / name).read_bytes())
    engine.load_adapter("folder", plain)
    for name in ("checkpoint", "folder"):
        engine.submit(name, PROMPT, SamplingParams(max_tokens=6, ignore_eos=True, adapter=name))
    for result in finish(engine).values():
        check(trainers["one"].model, result, PROMPT)


def test_an_adapter_of_other_weights_is_refused_and_whole_weights_drop_all(
    tiny_model: str, files: dict[str, Path], tmp_path: Path
):
    engine = TorchSamplingEngine(tiny_model, {})
    engine.load_adapter("one", files["one"])
    with pytest.raises(UserError, match="'base' is taken"):
        engine.load_adapter("base", files["one"])
    other = TrainingEngine(tiny_model, {"optimizer": {"lr": 0.01}})
    other.forward_backward(request_of([(PROMPT, [1] * len(PROMPT))], loss_fn="causal_cross_entropy"))
    other.step()
    exported = other.export_weights(tmp_path / "w.safetensors")
    engine.load_weights(exported.path, policy_version=1, fingerprint=exported.fingerprint)
    assert engine.adapters == {}
    with pytest.raises(EngineError, match="trained on"):
        engine.load_adapter("one", files["one"])


def test_named_adapters_go_with_the_base_that_a_synced_adapter_replaces(
    tiny_model: str, trainers: dict[str, TrainingEngine], files: dict[str, Path], tmp_path: Path
):
    engine = TorchSamplingEngine(tiny_model, {})
    merged, policy = (trainers["one"].export_weights(tmp_path / kind, kind) for kind in ("hf", "lora"))
    engine.load_weights(merged.path, policy_version=1, fingerprint=merged.fingerprint)
    trainers["two"].save(tmp_path / "two", "weights-only")
    (tmp_path / "two" / MARKER).unlink()
    engine.load_adapter("foreign", tmp_path / "two")
    engine.load_weights(policy.path, policy_version=2, fingerprint=policy.fingerprint)
    assert engine.adapters == {}, "an adapter that does not say its base was put on the one that is gone"
    engine.load_adapter("two", files["two"])
    for name in ("two", None):
        engine.submit(str(name), PROMPT, SamplingParams(max_tokens=4, ignore_eos=True, adapter=name))
    results = finish(engine)
    check(trainers["one"].model, results["None"], PROMPT)
    check(trainers["two"].model, results["two"], PROMPT)


def test_adapters_come_and_go_and_each_is_the_one_that_samples(
    tiny_model: str, trainers: dict[str, TrainingEngine], files: dict[str, Path]
):
    """Layers that are gone and new ones may have the same address."""
    engine = TorchSamplingEngine(tiny_model, {})
    for name in ("one", "two") * 3:
        engine.load_adapter(name, files[name])
        engine.submit(name, PROMPT, SamplingParams(max_tokens=4, ignore_eos=True, adapter=name))
        check(trainers[name].model, finish(engine)[name], PROMPT)
        engine.drop_adapter(name)
        gc.collect()


def with_targets(file: Path, copy: Path, *targets: str) -> tuple[Path, str]:
    """A copy that claims other target modules, and its fingerprint."""
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    settings = json.loads(metadata["peft_config"]) | {"target_modules": targets}
    save_file(load_file(file), copy, metadata=metadata | {"peft_config": json.dumps(settings)})
    return copy, metadata["fingerprint"]


@pytest.mark.parametrize("targets", [("q_proj", "lm_head"), ("nowhere",), ("q_proj",)])
@pytest.mark.parametrize("beside", [False, True])
def test_a_refused_adapter_leaves_the_policy_as_it_was(
    tiny_model: str,
    trainers: dict[str, TrainingEngine],
    files: dict[str, Path],
    tmp_path: Path,
    targets: tuple[str, ...],
    beside: bool,
):
    engine = TorchSamplingEngine(tiny_model, {})
    policy = trainers["one"].export_weights(tmp_path / "policy", "lora")
    engine.load_weights(policy.path, policy_version=1, fingerprint=policy.fingerprint)
    if beside:
        engine.load_adapter("two", files["two"])
    bad, fingerprint = with_targets(files["two"], tmp_path / "bad", *targets)
    with pytest.raises((UserError, EngineError)):
        engine.load_adapter("bad", bad)
    with pytest.raises(EngineError, match="does not fit"):
        engine.load_weights(bad, policy_version=2, fingerprint=fingerprint)
    assert (engine.policy_version, engine.fingerprint) == (1, policy.fingerprint)
    names = {"policy": None, "base": "base"} | ({"two": "two"} if beside else {})
    for key, name in names.items():
        engine.submit(key, PROMPT, SamplingParams(max_tokens=4, ignore_eos=True, adapter=name))
    results = finish(engine)
    check(trainers["one"].model, results["policy"], PROMPT)
    check(TrainingEngine(tiny_model, {}).model, results["base"], PROMPT)
    if beside:
        check(trainers["two"].model, results["two"], PROMPT)
