"""A model folder whose parts are another model's is refused by name before anything loads it."""

import json
import shutil
from pathlib import Path

import pytest
from builders.chat_families import FAMILIES
from builders.tiny_model import build_tiny_model
from tokenizers import AddedToken, Tokenizer

from drydock.chat.reply_reader import reader_for, reader_named
from drydock.chat.template import ChatTemplate
from drydock.finding import Level
from drydock.training.preflight.model import check_template, check_vocabulary, check_weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copy"))


def describe(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_whole_model_passes(model: Path) -> None:
    found = [*check_weights(model), *check_vocabulary(model, ChatTemplate.load(model))]
    assert [finding.level for finding in found] == [Level.PASS, Level.PASS]


def test_a_checkpoint_of_another_model_fails(copy: Path, tmp_path: Path) -> None:
    other = build_tiny_model(tmp_path / "other", hidden_size=32)
    shutil.copy2(other / "model.safetensors", copy / "model.safetensors")
    (finding,) = check_weights(copy)
    assert finding.level is Level.FAIL
    assert "trainer.policy.model.path" in finding.detail
    assert "× 32, described as" in finding.detail


def test_missing_layers_fail_and_more_than_described_do_not(copy: Path) -> None:
    describe(copy, num_hidden_layers=3)
    (finding,) = check_weights(copy)
    assert (finding.level, "2 layers, described as 3" in finding.detail) == (Level.FAIL, True)
    describe(copy, num_hidden_layers=1)  # some families keep a draft layer behind the others
    assert check_weights(copy)[0].level is Level.PASS


def test_the_text_part_of_a_larger_description_is_read(copy: Path) -> None:
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({"text_config": settings}))
    assert check_weights(copy)[0].level is Level.PASS


def test_weights_that_cannot_be_read_say_nothing(copy: Path) -> None:
    (copy / "model.safetensors").write_bytes(b"\xff" * 16)
    assert check_weights(copy) == []


def test_a_tokenizer_of_another_model_fails(copy: Path) -> None:
    describe(copy, vocab_size=100)
    (finding,) = check_vocabulary(copy, ChatTemplate.load(copy))
    assert finding.level is Level.FAIL
    assert "the model has 100" in finding.detail


def test_added_tokens_without_an_embedding_warn(copy: Path) -> None:
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<added>", special=False)])
    tokenizer.save(str(copy / "tokenizer.json"))
    (finding,) = check_vocabulary(copy, ChatTemplate.load(copy))
    assert finding.level is Level.WARN


def test_a_template_that_names_no_call_format_warns_unless_the_configuration_does(tmp_path: Path) -> None:
    named = FAMILIES["qwen3"](tmp_path / "qwen3")
    assert check_template(named, reader_for(named))[0].level is Level.PASS
    silent = FAMILIES["gemma3"](tmp_path / "gemma3")
    (finding,) = check_template(silent, reader_for(silent))
    assert finding.level is Level.WARN
    assert "generator.tool_call_format" in finding.remedy
    assert check_template(silent, reader_named("hermes", silent))[0].level is Level.PASS
