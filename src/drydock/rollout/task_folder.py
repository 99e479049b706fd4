"""A Harbor task as a folder on disk: how one is recognised, and what is wrong with its files, by file and line.

Nothing of the task is run but bash as a parser (`bash -n`), so this is quick and safe for a task that is not trusted.
What only a sandbox can show (a RUN line that fails, a verifier that leaves no reward) is `task_check`'s.
"""

import math
import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harbor.models.task.config import TaskConfig
from harbor.models.task.task import Task
from pydantic import ValidationError

from drydock.errors import ConfigError
from drydock.rollout.task_keys import misspelt_keys
from drydock.rollout.task_values import unusable_values
from drydock.rollout.toml_lines import line_of

TASK_FILES = ("instruction.md", "task.toml", "tests/test.sh", "steps")
"""A folder with any of these is a task, if perhaps an incomplete one."""

STATED_REWARDS = ("full_reward", "baseline_reward")
"""Keys of `[metadata]` by which a task says what its solution and doing nothing earn."""

_BASH_WAIT_S = 10.0


def task_folders(source: Path) -> list[Path]:
    """The task that `source` is, or those in it, sorted. Raises ConfigError when it holds none."""
    if not source.is_dir():
        raise ConfigError(f"{source} is no directory; give a Harbor task directory or a directory of them")
    if _is_task(source):
        return [source]
    children = [child for child in source.iterdir() if child.is_dir() and not child.name.startswith(".")]
    found = sorted(child for child in children if _is_task(child))
    if not found:
        raise ConfigError(
            f"no Harbor task in {source}: expected one of {', '.join(TASK_FILES)} in it or in a folder of it"
        )
    return found


def flaws_of(folder: Path) -> list[str]:
    """What is wrong with a task's files, each as `file:line: what`; empty when Harbor can read the task."""
    file = folder / "task.toml"
    text = ""
    try:
        text = file.read_text(encoding="utf-8")
        config = TaskConfig.model_validate(tomllib.loads(text))
    except FileNotFoundError:
        return [f"{file}: missing; a task needs one, if only with schema_version"]
    except UnicodeDecodeError as error:
        return [f"{file}: not UTF-8: {error.reason} at byte {error.start}"]
    except tomllib.TOMLDecodeError as error:
        return [_at_line(file, str(error))]
    except ValidationError as error:
        return [f"{file}:{line_of(text, item['loc'])}: {_named(item['loc'])}{item['msg']}" for item in error.errors()]
    misspelt = [
        f"{file}:{line_of(text, place)}: {_named(place)}unknown to Harbor and without effect; did you mean {near}?"
        for place, near in misspelt_keys(tomllib.loads(text))
    ]
    flaws = [
        *misspelt,
        *unusable(file, text, config),
        *_of_metadata(file, text, config),
        *_of_texts(folder, config),
        *_of_scripts(folder),
        *_of_special_files(folder),
    ]
    if not flaws:
        try:
            Task(folder)
        except (OSError, ValueError, RuntimeError) as error:
            flaws.append(f"{folder}: {error}")
    return flaws


def unusable(file: Path, text: str, config: TaskConfig) -> list[str]:
    """Values of the task.toml `file`, whose text is `text`, that nothing can honour, each as `file:line: what`."""
    return [f"{file}:{line_of(text, place)}: {_named(place)}{what}" for place, what in unusable_values(config)]


def has_solution(folder: Path) -> bool:
    """Whether a task says how it is solved, itself or in its steps."""
    return any(True for _ in (*folder.glob("solution/solve.sh"), *folder.glob("steps/*/solution/solve.sh")))


def stated_reward(folder: Path, key: str, default: float) -> float:
    """The number under `[metadata]` of a task without flaws."""
    config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    return float(config.get("metadata", {}).get(key, default))


def lists_mcp_servers(folder: Path) -> bool:
    """Whether the task names MCP servers; no for a task.toml that cannot be read."""
    try:
        return bool(tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))["environment"]["mcp_servers"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_task(folder: Path) -> bool:
    return any((folder / name).exists() for name in TASK_FILES)


def _of_metadata(file: Path, text: str, config: TaskConfig) -> Iterator[str]:
    for key in STATED_REWARDS:
        value = config.metadata.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            yield f"{file}:{line_of(text, ('metadata', key))}: metadata.{key}: {value!r} is no finite number"


def _of_texts(folder: Path, config: TaskConfig) -> Iterator[str]:
    """Instructions that are missing or empty, and steps without a folder."""
    places = [folder / "steps" / step.name for step in config.steps] if config.steps else [folder]
    for place in places:
        file = place / "instruction.md"
        if not file.is_file():
            yield f"{file}: missing; it is what the agent is told"
        elif (problem := _not_utf8(file)) is not None:
            yield problem
        elif not file.read_text(encoding="utf-8").strip():
            yield f"{file}:1: empty; it is what the agent is told"
    if config.steps:
        names = {step.name for step in config.steps}
        for spare in sorted(path for path in (folder / "steps").glob("*/") if path.name not in names):
            yield f"{spare}: no [[steps]] of task.toml has this name; add one or remove the folder"
    elif (folder / "steps").is_dir():
        yield f"{folder / 'task.toml'}:1: there is a folder steps but no [[steps]]"


def _of_scripts(folder: Path) -> Iterator[str]:
    """Shell scripts that bash cannot parse, or that no interpreter takes for their line ends."""
    for file in sorted([*folder.rglob("test.sh"), *folder.rglob("solve.sh")]):
        if not file.is_file():
            continue
        if b"\r" in _first_line(file):
            yield f"{file}:1: the lines end in CRLF, with which no interpreter is found; save it with LF (dos2unix)"
            continue
        if not _is_for_a_shell(file):
            continue
        command = ["bash", "-n", str(file)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_BASH_WAIT_S
        )
        if done.returncode != 0:
            first = (done.stderr.strip().splitlines() or ["bash cannot parse it"])[0]
            where = re.match(rf"{re.escape(str(file))}: line (\d+): (.*)", first)
            yield f"{file}:{where[1]}: {where[2]}" if where else f"{file}: {first}"


def _of_special_files(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*")):
        if is_special(file.lstat().st_mode):
            yield f"{file}: neither a file nor a folder nor a link, which is all that a task can hold; remove it"


def is_special(mode: int) -> bool:
    """Whether a mode (`st_mode`, of the entry itself) is that of a pipe, a socket or a device."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _not_utf8(file: Path) -> str | None:
    """Where a text file is no UTF-8, as `file:line: what`; None when it is."""
    content = file.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"{file}:{line}: not UTF-8 ({error.reason}); save it as UTF-8"
    return None


def _first_line(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.readline(200)


def _is_for_a_shell(script: Path) -> bool:
    first = _first_line(script)
    return not first.startswith(b"#!") or re.search(rb"\b(ba)?sh\b", first) is not None


def _at_line(file: Path, message: str) -> str:
    """tomllib says the line in its message only."""
    where = re.search(r" \(at line (\d+), column \d+\)$", message)
    return f"{file}:{where[1]}: {message[: where.start()]}" if where else f"{file}: {message}"


def _named(location: tuple[Any, ...]) -> str:
    return f"{'.'.join(map(str, location))}: " if location else ""
