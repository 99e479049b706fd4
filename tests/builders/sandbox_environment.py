"""Sandboxes of either kind, made as Harbor makes them."""

import logging
from pathlib import Path
from typing import Any

from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from drydock.sandbox.environment import SandboxEnvironment


def build_environment(
    kind: type[SandboxEnvironment],
    directory: Path,
    dockerfile: str,
    *,
    task: dict[str, Any] | None = None,
    **kwargs: Any,
) -> SandboxEnvironment:
    """An unstarted sandbox whose task and state are below `directory`; an empty `dockerfile` writes none."""
    context = directory / "environment"
    context.mkdir(parents=True, exist_ok=True)
    if dockerfile:
        (context / "Dockerfile").write_text(dockerfile)
    paths = TrialPaths(directory / "trial")
    paths.trial_dir.mkdir(exist_ok=True)
    return kind(
        environment_dir=context,
        environment_name="task",
        session_id=f"{directory.name}__env",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(**(task or {})),
        logger=logging.getLogger("test"),
        state_dir=str(directory / "state"),
        **kwargs,
    )
