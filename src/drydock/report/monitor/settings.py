"""The few settings of a run that its view needs, from `config.toml`, whatever version of Drydock wrote it."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from drydock.report.monitor.step_rows import number


@dataclass(frozen=True, slots=True)
class RunSettings:
    """supervised: made by `drydock sft`. most_steps: `trainer.max_training_steps`, None where it is not set."""

    run_name: str
    model: str
    supervised: bool
    most_steps: int | None
    eval_interval: int
    eval_after_train: bool

    @classmethod
    def read(cls, config: Path) -> Self | None:
        """None for a file that is not there, not whole yet, or no configuration of a run."""
        try:
            tree = tomllib.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        run_name, most_steps = _at(tree, "trainer.run_name", str), _at(tree, "trainer.max_training_steps", int)
        if run_name is None:
            return None
        return cls(
            run_name=run_name,
            model=_at(tree, "trainer.policy.model.path", str) or "",
            supervised="generator" not in tree,
            most_steps=None if number(most_steps) is None else most_steps,
            eval_interval=max(0, _at(tree, "trainer.eval_interval", int) or 0),
            eval_after_train=_at(tree, "trainer.eval_after_train", bool) or False,
        )

    def evaluations_after(self, step: int, last: int) -> int:
        """How many evaluations follow `step` until the end, that of the last step included."""
        regular = last // self.eval_interval - step // self.eval_interval if self.eval_interval else 0
        one_more = self.eval_after_train and (not self.eval_interval or last % self.eval_interval != 0)
        return regular + (one_more and step < last)


@dataclass(slots=True)
class SettingsFile:
    """Parses the configuration once for each version of it, which is told by its time, size and inode."""

    file: Path
    _settings: RunSettings | None = field(default=None, init=False)
    _version: tuple[int, int, int] | None = field(default=None, init=False)

    def poll(self) -> RunSettings | None:
        """The settings as they are now; None for a file that is not there, not whole yet, or no configuration."""
        version = _version_of(self.file)
        if version is None or version != self._version or self._settings is None:
            self._settings, self._version = RunSettings.read(self.file), version
        return self._settings


def _version_of(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _at[Value](tree: Any, dotted: str, kind: type[Value]) -> Value | None:
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree if isinstance(tree, kind) else None
