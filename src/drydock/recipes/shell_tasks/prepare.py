"""Everything the demo's run needs, written to one folder from one seed.

`train/` and `held_out/` (Harbor task directories), `demonstrations/{clean,sloppy}.jsonl` (warm start), `model/` (tiny
random Qwen3), `system_prompt.j2` and `run.toml`. The folder appears whole or not at all; preparing it again with the
same settings does nothing, with other settings makes it anew.
"""

import json
import random
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from drydock.errors import ConfigError
from drydock.harness.tool_schemas import tool_schemas
from drydock.recipes.shell_tasks.demonstration import Message, clean_demonstration, sloppy_demonstration
from drydock.recipes.shell_tasks.model import write_tiny_model
from drydock.recipes.shell_tasks.task import ShellTask, draw_task
from drydock.recipes.shell_tasks.task_folder import write_task_folder

MARKER = "prepared.json"
VERSION = 1
"""Raised whenever what is written changes, so that an older folder is made anew."""


@dataclass(frozen=True, slots=True)
class DemoData:
    """How much to make; `sloppy_share` is the share of mistaken conversations in the second warm-start stage."""

    seed: int = 0
    train_tasks: int = 384
    held_out_tasks: int = 32
    clean_demonstrations: int = 6000
    sloppy_demonstrations: int = 800
    sloppy_share: float = 0.7


def prepare(folder: Path, data: DemoData) -> Path:
    """Write the demo's data to `folder` unless it is there already. Raises ConfigError for a foreign folder."""
    identity = {"version": VERSION, **asdict(data)}
    marker = folder / MARKER
    if marker.exists():
        if json.loads(marker.read_text()) == identity:
            return folder
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty and was not written by `drydock demo prepare`; name another folder")
    partial = folder.resolve().with_name(f".{folder.resolve().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _write_all(partial, data)
    (partial / MARKER).write_text(json.dumps(identity) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
    return folder


def _write_all(folder: Path, data: DemoData) -> None:
    rng = random.Random(f"shell-tasks/{data.seed}")
    seen: set[str] = set()
    for split, count in (("train", data.train_tasks), ("held_out", data.held_out_tasks)):
        for index in range(count):
            write_task_folder(_new_task(rng, f"{split.replace('_', '-')}-{index:04d}", seen), folder / split)
    clean = [clean_demonstration(_new_task(rng, "demonstration", seen)) for _ in range(data.clean_demonstrations)]
    sloppy = [_mixed(rng, seen, data.sloppy_share) for _ in range(data.sloppy_demonstrations)]
    _write_lines(folder / "demonstrations" / "clean.jsonl", clean)
    _write_lines(folder / "demonstrations" / "sloppy.jsonl", sloppy)
    shipped = resources.files("drydock.recipes.shell_tasks")
    prompt = shipped.joinpath("system_prompt.j2").read_text()
    (folder / "system_prompt.j2").write_text(prompt)
    (folder / "run.toml").write_text(shipped.joinpath("run.toml").read_text())
    write_tiny_model(folder / "model", _texts(prompt, clean, sloppy), seed=data.seed)


def _new_task(rng: random.Random, name: str, seen: set[str]) -> ShellTask:
    """A task whose instruction occurs nowhere else: held-out tasks and demonstrations are not training tasks."""
    while True:
        task = draw_task(rng, name)
        if task.instruction not in seen:
            seen.add(task.instruction)
            return task


def _mixed(rng: random.Random, seen: set[str], sloppy_share: float) -> list[Message]:
    task = _new_task(rng, "demonstration", seen)
    return sloppy_demonstration(task, rng) if rng.random() < sloppy_share else clean_demonstration(task)


def _write_lines(file: Path, conversations: Iterable[list[Message]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in conversations))


def _texts(prompt: str, *groups: Iterable[list[Message]]) -> Iterable[str]:
    """What the model will read and write, as the chat template lays it out, special tokens left out."""
    functions = [schema["function"] for schema in tool_schemas(["terminal", "finish"])]
    signatures = "\n".join(f"{f['name']}({', '.join(f['parameters']['properties'])})" for f in functions)
    for messages in (messages for group in groups for messages in group):
        yield f"system\n{prompt}\n<tools>\n{signatures}\n</tools>"
        for message in messages:
            if message["role"] == "user":
                yield f"user\n{message['content']}"
            elif message["role"] == "tool":
                yield f"user\n<tool_response>\n{message['content']}\n</tool_response>"
            for call in message.get("tool_calls", ()):
                yield "assistant\n"
                yield f'\n{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}\n'
