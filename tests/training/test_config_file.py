"""Configuration files, overrides and the messages for what is wrong with them."""

from pathlib import Path

import pytest

from drydock.errors import ConfigError
from drydock.training.config_file import known_keys, load_run_config, parse_override, to_toml

REQUIRED = ["data.train=tasks", "trainer.policy.model.path=some/model"]


def test_overrides_win_over_the_file_and_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[trainer]\nseed = 1\nrun_name = "a"\n[data]\ntrain = ["t"]\n[trainer.policy.model]\npath = "m"\n')
    config = load_run_config(
        file, ["trainer.seed=7", "generator.sampling_params.temperature=0.5", "data.shuffle=false"]
    )
    assert config.trainer.seed == 7
    assert config.trainer.run_name == "a"
    assert config.generator.sampling_params.temperature == 0.5
    assert config.data.shuffle is False


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    file = tmp_path / "conf" / "run.toml"
    file.write_text(
        '[data]\ntrain = ["tasks"]\n[trainer.policy.model]\npath = "model"\n'
        '[[warm_start]]\nconversations = "demo.jsonl"\nsteps = 1\nlr = 1e-3\n'
    )
    monkeypatch.chdir(tmp_path)
    config = load_run_config(file, ["data.eval=held_out"])
    assert config.data.train == [tmp_path / "conf" / "tasks"]
    assert config.data.eval == [tmp_path / "held_out"]
    assert config.trainer.policy.model.path == str(tmp_path / "conf" / "model")
    assert config.warm_start[0].conversations == tmp_path / "conf" / "demo.jsonl"


def test_a_hub_id_stays_a_hub_id(tmp_path: Path) -> None:
    config = load_run_config(None, ["data.train=t", "trainer.policy.model.path=Qwen/Qwen3.5-4B"])
    assert config.trainer.policy.model.path == "Qwen/Qwen3.5-4B"


def test_the_resolved_configuration_reads_back_equal(tmp_path: Path) -> None:
    config = load_run_config(None, [*REQUIRED, "service.schema=S", 'sandbox.kwargs.image="x\\ny"', "trainer.epochs=3"])
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    assert load_run_config(file) == config


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("trainer.sead=1", "trainer.seed"),
        ("trainer.max_training_step=1", "trainer.max_training_steps"),
        ("generator.temperature=1", "generator.sampling_params.temperature"),
        ("trainer.policy.optimizer.lr=1", "trainer.policy.optimizer_config"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(override: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=suggestion.replace(".", r"\.")) as caught:
        load_run_config(None, [*REQUIRED, override])
    assert override.split("=", maxsplit=1)[0].rsplit(".", 1)[0] in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([*REQUIRED, "trainer.seed=abc"], "trainer.seed"),
        ([*REQUIRED, "trainer.seed"], "section.key=value"),
        (["data.train=t"], "trainer.policy.model.path is required"),
        (["trainer.policy.model.path=m"], "data.train is required"),
        ([*REQUIRED, "trainer.policy_mini_batch_size=3"], "must divide train_batch_size"),
        ([*REQUIRED, "generator.sampling_params.temperature=0"], "greedy"),
        ([*REQUIRED, "trainer.run_name=../x"], "trainer.run_name"),
        ([*REQUIRED, "warm_start=3"], "warm_start"),
    ],
)
def test_what_cannot_work_is_refused_by_name(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run_config(None, overrides)


@pytest.mark.parametrize(("given", "below"), [("~/talk.jsonl", "home"), ("talk.jsonl", "work")])
def test_a_path_in_a_numbered_entry_is_resolved_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, below: str
) -> None:
    for folder in ("home", "work"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    file = tmp_path / "run.toml"
    file.write_text('[[warm_start]]\nconversations = "old.jsonl"\nsteps = 1\nlr = 1.0\n')
    config = load_run_config(file, [*REQUIRED, f"warm_start.0.conversations={given}"])
    assert config.warm_start[0].conversations == tmp_path / below / "talk.jsonl"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*nowhere\.toml"):
        load_run_config(tmp_path / "nowhere.toml")


def test_words_that_are_no_toml_values_are_strings() -> None:
    assert parse_override("a.b=hello world") == ("a.b", "hello world")
    assert parse_override("a.b=true") == ("a.b", True)
    assert parse_override('a.b=["x","y"]') == ("a.b", ["x", "y"])


def test_known_keys_are_leaves_of_every_section() -> None:
    keys = known_keys()
    assert {"trainer.policy.model.path", "service.schema", "generator.eval_sampling_params.top_p"} <= set(keys)
    assert "trainer.policy" not in keys
