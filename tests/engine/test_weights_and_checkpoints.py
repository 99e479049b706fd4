import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from builders.tiny_model import build_tiny_model
from builders.train_batch import grouped_rows, request_of
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.weights import fingerprint, unique_weights
from drydock.errors import EngineError, UserError


def train(engine: TrainingEngine, seed: int) -> float:
    rows = grouped_rows(np.random.default_rng(seed), groups=2)
    engine.forward_backward(request_of(rows, advantages=np.random.default_rng(seed).normal(size=len(rows)).tolist()))
    return engine.step()["metrics"]["grad_norm"]


def test_a_fingerprint_tells_names_shapes_and_bytes_apart():
    weights = {"a": torch.arange(4.0), "b": torch.ones(2)}
    mark = fingerprint(weights)
    assert fingerprint(dict(reversed(weights.items()))) == mark
    changed = [
        {"a": torch.arange(4.0), "c": torch.ones(2)},
        {"a": torch.arange(4.0).view(2, 2), "b": torch.ones(2)},
        {"a": torch.arange(4.0), "b": torch.ones(2) + 1e-7},
        {"a": torch.arange(4.0), "b": torch.ones(2, dtype=torch.float64)},
    ]
    assert len({fingerprint(other) for other in changed} | {mark}) == 5


def test_a_model_on_a_cpu_is_independent_of_its_files(tmp_path: Path):
    folder = build_tiny_model(tmp_path / "model")
    engine = TorchSamplingEngine(str(folder), {})
    before = engine.fingerprint
    file = folder / "model.safetensors"
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        opened.write(bytes(file.stat().st_size // 2))
    assert fingerprint(unique_weights(engine.model)) == before, "overwritten in place"
    os.truncate(file, 0)
    assert fingerprint(unique_weights(engine.model)) == before, "and truncated, which ends a process that maps it"
    assert engine.model.lm_head.weight is engine.model.model.embed_tokens.weight


def test_the_sampler_takes_over_exported_weights_in_place(tiny_model: str, tmp_path: Path):
    trainer, sampler = TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-2}}), TorchSamplingEngine(tiny_model, {})
    assert sampler.fingerprint == fingerprint(unique_weights(trainer.model))
    train(trainer, 0)
    exported = trainer.export_weights(tmp_path / "w.safetensors")
    assert exported.policy_version == 1
    assert exported.fingerprint != sampler.fingerprint
    pointers = [p.data_ptr() for p in sampler.model.parameters()]
    taken = sampler.load_weights(exported.path, policy_version=1, fingerprint=exported.fingerprint)
    assert (taken.policy_version, taken.fingerprint) == (1, exported.fingerprint)
    assert (sampler.policy_version, sampler.fingerprint) == (1, exported.fingerprint)
    assert pointers == [p.data_ptr() for p in sampler.model.parameters()]
    for mine, theirs in zip(sampler.model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert "lm_head.weight" not in load_file(exported.path)
    assert sampler.model.lm_head.weight is sampler.model.model.embed_tokens.weight


def test_weights_that_are_not_the_announced_ones_change_nothing(tiny_model: str, tmp_path: Path):
    trainer, sampler = TrainingEngine(tiny_model, {}), TorchSamplingEngine(tiny_model, {})
    before = sampler.fingerprint
    weights = {name: tensor.clone() for name, tensor in unique_weights(trainer.model).items()}
    weights["model.norm.weight"] += 1
    bad_shape = weights | {"model.norm.weight": torch.ones(3)}
    missing = {name: tensor for name, tensor in weights.items() if "norm" not in name}
    for number, (content, mark, message) in enumerate(
        [(weights, "0" * 32, "expected 000"), (bad_shape, None, "shape"), (missing, None, "missing")]
    ):
        path = tmp_path / f"{number}.safetensors"
        save_file(content, path)
        with pytest.raises(EngineError, match=message):
            sampler.load_weights(path, policy_version=1, fingerprint=mark or fingerprint(content))
    with pytest.raises(EngineError, match="cannot be read"):
        sampler.load_weights(tmp_path / "none.safetensors", policy_version=1, fingerprint=before)
    assert (sampler.policy_version, sampler.fingerprint) == (0, before)
    assert fingerprint(unique_weights(sampler.model)) == before


def test_a_resumed_engine_continues_exactly(tiny_model: str, tmp_path: Path):
    config = {"optimizer": {"lr": 3e-3}}
    engine = TrainingEngine(tiny_model, config)
    train(engine, 0)
    train(engine, 1)
    assert engine.save(tmp_path / "cp", "resumable")["global_steps"] == 2
    resumed = TrainingEngine(tiny_model, config, seed=9)
    assert resumed.load(tmp_path / "cp")["global_steps"] == 2
    assert [train(engine, s) for s in (2, 3)] == [train(resumed, s) for s in (2, 3)]
    assert fingerprint(unique_weights(engine.model)) == fingerprint(unique_weights(resumed.model))
    assert resumed.global_steps == 4


def test_a_weights_only_checkpoint_is_a_hugging_face_folder(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 3e-3}})
    train(engine, 0)
    engine.save(tmp_path / "hf", "weights-only")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert fingerprint(unique_weights(model)) == fingerprint(unique_weights(engine.model))
    assert AutoTokenizer.from_pretrained(tmp_path / "hf").chat_template
    assert not (tmp_path / "hf" / "optimizer.safetensors").exists()
    assert "use_cache" not in json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
    other = TrainingEngine(tiny_model, {})
    assert other.load(tmp_path / "hf")["checkpoint_type"] == "weights-only"
    assert TorchSamplingEngine(str(tmp_path / "hf"), {}).fingerprint == fingerprint(unique_weights(other.model))


def test_a_damaged_checkpoint_is_not_loaded(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(tiny_model, {})
    with pytest.raises(EngineError, match=r"COMPLETE\.json"):
        engine.load(tmp_path)
    engine.save(tmp_path / "cp", "resumable")
    (tmp_path / "cp" / "optimizer.safetensors").write_bytes(b"short")
    with pytest.raises(EngineError, match=r"optimizer\.safetensors"):
        engine.load(tmp_path / "cp")


def test_a_changed_byte_is_found_by_its_checksum(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(tiny_model, {})
    engine.save(tmp_path / "cp", "weights-only")
    before = fingerprint(unique_weights(engine.model))
    path = tmp_path / "cp" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"model\.safetensors has another SHA-256"):
        engine.load(tmp_path / "cp")
    assert fingerprint(unique_weights(engine.model)) == before


def test_a_hugging_face_folder_from_elsewhere_is_loaded_unless_it_holds_pickles_or_code(
    tiny_model: str, tmp_path: Path
):
    source = TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-2}})
    train(source, 0)
    folder = tmp_path / "hf"
    source.model.save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-2}})
    train(engine, 1)
    assert engine.load(folder) == {"path": str(folder), "checkpoint_type": "weights-only", "global_steps": 0}
    assert fingerprint(unique_weights(engine.model)) == fingerprint(unique_weights(source.model))
    for name in ("pytorch_model.bin", "modeling_x.py", "adapter_config.json"):
        (folder / name).write_text("{}")
        with pytest.raises(UserError, match=r"pickles or code|holds an adapter"):
            engine.load(folder)
        (folder / name).unlink()
    (folder / "trainer_state.json").write_text("{}")
    with pytest.raises(EngineError, match=r"COMPLETE\.json"):
        engine.load(folder)


def test_what_cannot_be_saved_is_refused(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(tiny_model, {})
    with pytest.raises(UserError, match="unknown checkpoint_type"):
        engine.save(tmp_path / "a", "full")
    engine.save(tmp_path / "a", "weights-only")
    with pytest.raises(UserError, match="exists already"):
        engine.save(tmp_path / "a", "weights-only")
    engine.forward_backward(request_of(grouped_rows(np.random.default_rng(0), groups=1)))
    with pytest.raises(UserError, match="accumulated gradients"):
        engine.save(tmp_path / "b", "resumable")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
