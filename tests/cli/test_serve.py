"""`drydock serve` as a user runs it: a process, a base URL, an OpenAI client."""

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


def test_what_is_no_model_is_refused_at_once(tmp_path: Path):
    command = [sys.executable, "-m", "drydock.cli.main", "serve", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 2
    assert "config.json" in done.stderr
