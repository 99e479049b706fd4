from pathlib import Path

import pytest
from builders.hollow_model import model_folder
from builders.tiny_model import build_tiny_model

from drydock.engine import checkpoint as engine_checkpoint
from drydock.losses import LOSSES
from drydock.service import checkpoint_files, source_checkpoint
from drydock.service.model_facts import NOTHING_KNOWN, facts_of, read_facts
from drydock.service.model_size import check_size, machine_bytes, needed_bytes
from drydock.service.problems import Refusal
from drydock.wire.loss_names import LOSS_SETTINGS, problem_of
from drydock.wire.rest import SubJobConfig


def sub_job(model: Path, job_type: str, dtype: str | None = None) -> SubJobConfig:
    block = "training_config" if job_type == "training" else "inference_config"
    fields = {"job_type": job_type, "model_name": str(model), "dtype": dtype, block: {"n_gpus": 2}}
    return SubJobConfig.model_validate(fields)


def test_facts_of_a_real_model(tmp_path: Path):
    facts = read_facts(build_tiny_model(tmp_path / "tiny"))
    assert (facts.vocab_size, facts.max_positions) == (400, 4096)
    # 400 x 64 embedding (tied) + 2 layers of q 64x64, k and v 32x64, o 64x64, three 192x64, four norms + last norm
    layer = 64 * 64 * 2 + 2 * 32 * 64 + 3 * 192 * 64 + 2 * 64 + 2 * 16
    assert facts.parameters == 400 * 64 + 2 * layer + 64
    assert facts.differences(facts) == ""


def test_architectures_that_cannot_share_weights_are_told_apart(tmp_path: Path):
    one = read_facts(model_folder(tmp_path / "one", 100, hidden_size=64))
    other = read_facts(model_folder(tmp_path / "other", 100, hidden_size=128))
    assert one.differences(other) == "hidden_size 64 != 128"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/no/such/folder", "there is no model folder"),
        ("./nothing", "there is no model folder"),
        ("~nobody-at-all/model", "home folder"),
        ("not a hub id", "neither a folder nor a hub id"),
        ("a" * 500, "neither a folder nor a hub id"),
        ("org/" + "b" * 300, "neither a folder nor a hub id"),
        ("null\0byte", "is no model name"),
    ],
)
def test_a_model_that_cannot_be_there_is_refused_by_name(name: str, said: str):
    with pytest.raises(Refusal, match=said) as caught:
        facts_of(name, "sub_job_configs.0.model_name")
    assert caught.value.status == 422
    assert caught.value.message.startswith("sub_job_configs.0.model_name: ")


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path):
    with pytest.raises(Refusal, match=r"no config\.json"):
        facts_of(str(tmp_path), "model_name")


def test_a_hub_id_is_refused_only_by_a_service_that_is_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert facts_of("org/model", "model_name") is None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refusal, match="offline"):
        facts_of("org/model", "model_name")
    model_folder(tmp_path / "models--org--model" / "snapshots" / "abc", 10)
    facts = facts_of("org/model", "model_name")
    assert facts is not None
    assert facts.vocab_size == 1000


def test_memory_that_a_model_needs_at_least(tmp_path: Path):
    folder = model_folder(tmp_path / "model", 1000)
    facts = read_facts(folder)
    assert needed_bytes(sub_job(folder, "training"), facts, on_cpu=True) == 1000 * 4 * 4
    assert needed_bytes(sub_job(folder, "training", "bfloat16"), facts, on_cpu=True) == 1000 * 4 * 2
    assert needed_bytes(sub_job(folder, "sampling", "bf16"), facts, on_cpu=True) == 1000 * 2
    assert needed_bytes(sub_job(folder, "sampling"), None, on_cpu=True) == 0


def test_models_larger_than_the_machine_are_refused_with_both_figures(tmp_path: Path):
    half = model_folder(tmp_path / "half", machine_bytes() * 6 // 10 // 4)
    facts = read_facts(half)
    check_size([(sub_job(half, "sampling"), facts)], "CPU")
    for models in ([sub_job(half, "training")], [sub_job(half, "sampling"), sub_job(half, "sampling")]):
        with pytest.raises(Refusal, match=r"needs at least .* GiB .* CPU offers .* GiB") as caught:
            check_size([(config, facts) for config in models], "CPU")
        assert caught.value.status == 422


def test_broken_model_files_say_nothing_instead_of_failing(tmp_path: Path):
    for name, content in (("a", "{"), ("b", "[]"), ("c", '{"text_config": 3}'), ("d", '{"vocab_size": -1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
        (tmp_path / name / "model.safetensors").write_bytes(b"\xff" * 20)
        facts = read_facts(tmp_path / name)
        assert (facts.vocab_size, facts.parameters) == (None, None)


def test_the_table_of_losses_is_the_registrys():
    assert {name: set(entry.config.model_fields) for name, entry in LOSSES.items()} == {
        name: set(settings) for name, settings in LOSS_SETTINGS.items()
    }


def test_unknown_losses_and_settings_offer_the_nearest_name():
    assert problem_of("grpo", {"eps_clip": 0.1}) is None
    assert "did you mean 'grpo'" in (problem_of("grop", {}) or "")
    assert "processing.config.eps_clp" in (problem_of("grpo", {"eps_clp": 1}) or "")


def test_names_of_checkpoint_files_are_the_engines():
    assert checkpoint_files.MANIFEST == engine_checkpoint.MARKER
    assert source_checkpoint.STATE == engine_checkpoint.STATE


def test_a_folder_without_a_configuration_has_no_facts(tmp_path: Path):
    assert read_facts(tmp_path) == NOTHING_KNOWN
