"""The time limits that a task sets for itself, read before Harbor is asked to run it.

Harbor lets a caller replace a limit, or cap it, but a task without an agent limit has none at all however it is capped;
so the limits that hold are worked out here and always set.
"""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from drydock.errors import TaskError
from drydock.rollout.settings import RolloutDeadlines

HARBOR_DEFAULT_S = 600.0
"""Harbor's limit for building an environment and for the verifier when the task names none."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Seconds; `agent_s` is None when the task has no limit. in_steps: its steps can have limits of their own."""

    agent_s: float | None
    verifier_s: float
    build_s: float
    in_steps: bool = False

    def agent_limit_s(self, deadlines: RolloutDeadlines) -> float:
        return min(self.agent_s or deadlines.agent_s, deadlines.agent_s)

    def build_multiplier(self, deadlines: RolloutDeadlines) -> float:
        """Factor that brings the task's build limit down to the run's, which Harbor can only scale."""
        return min(1.0, deadlines.sandbox_start_s / self.build_s)


def task_limits(task_path: Path) -> TaskLimits:
    """Read the limits in a task's `task.toml`; raises TaskError when it cannot be read."""
    file = task_path / "task.toml"
    try:
        return _limits(file, file.stat().st_mtime_ns)
    except (OSError, tomllib.TOMLDecodeError, ValueError, AttributeError, TypeError) as error:
        raise TaskError(f"cannot read {file}: {error}") from error


@lru_cache(maxsize=4096)
def _limits(file: Path, modified_ns: int) -> TaskLimits:
    """`modified_ns` is part of the cache key only."""
    config = tomllib.loads(file.read_text(encoding="utf-8"))
    agent_s = config.get("agent", {}).get("timeout_sec")
    return TaskLimits(
        agent_s=float(agent_s) if agent_s is not None else None,
        verifier_s=float(config.get("verifier", {}).get("timeout_sec") or HARBOR_DEFAULT_S),
        build_s=float(config.get("environment", {}).get("build_timeout_sec") or HARBOR_DEFAULT_S),
        in_steps=bool(config.get("steps")),
    )
