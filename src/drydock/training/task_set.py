"""The tasks of a run: found on disk, checked, and dealt out in batches, one pass an epoch."""

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import ConfigError

REQUIRED_FILES = ("instruction.md", "task.toml", "environment", "tests/test.sh")


@dataclass(frozen=True, slots=True)
class Task:
    """name: unique in its task set, fit for a file name; path: the Harbor task directory."""

    name: str
    path: Path


def find_tasks(sources: Sequence[Path], setting: str) -> list[Task]:
    """Every task in `sources`; each is a task directory or a directory of them. Sorted, names made unique.

    `setting` names the configuration key in errors. Raises ConfigError for a source that is missing, empty or holds an
    incomplete task.
    """
    folders: list[Path] = []
    for source in sources:
        folders.extend(_folders_in(source, setting))
    unique = sorted({folder.resolve() for folder in folders})
    tasks: dict[str, Task] = {}
    for folder in unique:
        _check_complete(folder, setting)
        name, number = folder.name, 2
        while name in tasks:
            name, number = f"{folder.name}~{number}", number + 1
        tasks[name] = Task(name, folder)
    return list(tasks.values())


def deal_batches(
    tasks: Sequence[Task], *, batch_size: int, epochs: int, shuffle: bool, seed: int
) -> Iterator[list[Task]]:
    """Batches of distinct tasks, whole ones only; what is left of a pass is dropped.

    The order is a function of `seed` and the epoch alone.
    """
    for epoch in range(epochs):
        order = list(tasks)
        if shuffle:
            random.Random(f"{seed}/{epoch}").shuffle(order)
        for start in range(0, len(order) - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


def steps_available(task_count: int, batch_size: int, epochs: int) -> int:
    """Steps that `epochs` passes over the task set give."""
    return task_count // batch_size * epochs


def _folders_in(source: Path, setting: str) -> list[Path]:
    if not source.exists():
        raise ConfigError(f"{setting}: no such task directory: {source}")
    if not source.is_dir():
        raise ConfigError(f"{setting}: {source} is a file; give a Harbor task directory or a directory of them")
    if _looks_like_task(source):
        return [source]
    children = [child for child in source.iterdir() if child.is_dir() and not child.name.startswith(".")]
    folders = [child for child in children if _looks_like_task(child)]
    if not folders:
        raise ConfigError(
            f"{setting}: no Harbor task in {source}: expected {', '.join(REQUIRED_FILES)} in it or its subdirectories"
        )
    return folders


def _looks_like_task(folder: Path) -> bool:
    """Whether anything of a task is there, so that an incomplete task is reported instead of overlooked."""
    return any((folder / name).exists() for name in ("instruction.md", "task.toml", "tests/test.sh"))


def _check_complete(folder: Path, setting: str) -> None:
    _check_readable(folder / "task.toml", setting)
    if (folder / "steps").is_dir():
        return
    missing = [name for name in REQUIRED_FILES if not (folder / name).exists()]
    if missing:
        raise ConfigError(
            f"{setting}: the task {folder} has no {' and no '.join(missing)}; add it or leave the task out"
        )


def _check_readable(file: Path, setting: str) -> None:
    """A malformed task.toml would fail every rollout of its task, hours into the run."""
    try:
        tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{setting}: {file} cannot be read: {error}; mend it or leave the task out") from None
