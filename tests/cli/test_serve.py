"""`drydock serve` as a user runs it: a process, a base URL, an OpenAI client."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from builders.tiny_model import build_tiny_model

START_S = 90


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("serve") / "model")


def adapter_of(model: Path, folder: Path) -> Path:
    """A LoRA checkpoint that bends the model, as a training job would save it."""
    code = """
import sys, torch
from drydock.engine.training import TrainingEngine
engine = TrainingEngine(sys.argv[1], {"peft_config": {"peft_type": "Lora", "r": 2, "target_modules": "all-linear"}})
with torch.no_grad():
    for name, parameter in engine.model.named_parameters():
        if "lora_B" in name:
            parameter.normal_(std=0.3)
from pathlib import Path
engine.save(Path(sys.argv[2]), "weights-only")
"""
    subprocess.run([sys.executable, "-c", code, str(model), str(folder)], check=True, timeout=120)
    return folder


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], openai.OpenAI, list[str]]]:
    """The running command, a client of it, and the names that it printed."""
    command = [sys.executable, "-m", "drydock.cli.main", "serve", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "DRYDOCK_SERVICE_TOKEN"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        url, key, names = (re.split(r"\s{2,}", line.strip())[1] for line in lines)
        with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
            yield process, client, names.split(", ")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@pytest.mark.timeout(180)
def test_an_adapter_its_base_and_another_are_served_side_by_side(model: Path, tmp_path: Path):
    adapter = adapter_of(model, tmp_path / "adapter")
    with serving(str(adapter), "--name", "tuned", "--adapter", f"other={adapter}") as (process, client, names):
        assert names == ["tuned", "tuned:base", "tuned:other"]
        texts = {}
        for name in names:
            answer = client.completions.create(model=name, prompt="The file is", max_tokens=16, temperature=0)
            texts[name] = answer.choices[0].text
        assert texts["tuned:other"] == texts["tuned"] != texts["tuned:base"], "the name is the adapter's"
        assert {entry.id for entry in client.models.list()} >= set(names)
        chat = client.chat.completions.create(model="tuned", messages=[{"role": "user", "content": "hi"}], max_tokens=3)
        assert chat.usage is not None
        assert chat.usage.completion_tokens <= 3
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def refused(*arguments: str) -> str:
    """What a command that ends with exit code 2 says; `HF_HUB_OFFLINE` keeps it from asking a hub."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "drydock.cli.main", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False, env=environment)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_what_is_no_model_is_refused_at_once(model: Path, tmp_path: Path):
    assert "config.json" in refused(str(tmp_path))
    mistyped = refused("nosuch")
    assert "neither a model folder" in mistyped
    assert "hub model" in mistyped
    assert "holds no adapter" in refused(str(model), "--adapter", f"x={model}")


def test_an_adapter_whose_base_is_missing_names_both_and_the_option(tmp_path: Path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "gone/model"}))
    for arguments, wanted in (((), "'gone/model' (its adapter_config.json)"), (("--base", "nix"), "'nix' (--base)")):
        said = refused(str(adapter), *arguments)
        assert f"the adapter in {adapter} wants the base {wanted}" in said
        assert "with --base" in said


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_an_adapter_on_a_base_that_it_was_not_trained_on_names_both_and_the_option(model: Path, tmp_path: Path):
    adapter = adapter_of(model, tmp_path / "adapter")
    other = build_tiny_model(tmp_path / "other", seed=1)
    command = [sys.executable, "-m", "drydock.cli.main", "serve", str(adapter), "--base", str(other)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 1
    assert f"waiting for the adapter in {adapter} on the base {other} to be loaded" in done.stderr
    assert "was trained on other weights" in done.stderr
    assert "name the model that the adapter was trained on with --base" in done.stderr
