"""Which of the driver's environment variables a task asks for, and the refusal of those that the run does not allow.

Harbor fills in `${NAME}` in several places of a task's `task.toml`, and Docker in its composition, from the environment
of the driver, whatever it holds: credentials too. So a task that is not trusted could read them. Here a task may only
read what the run names in `sandbox.pass_env`; a default (`${NAME:-x}`) changes nothing about that.

What is looked at is what Harbor and Docker substitute, no more: a composition can also mount the machine's files, and
is to be trusted as the driver is.
"""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor.models.task.config import EnvironmentConfig, VerifierConfig
from harbor.models.task.task import Task
from harbor.utils.env import embedded_env_var_templates, get_required_host_vars

from drydock.errors import TaskError

_COMPOSITION = "environment/docker-compose.yaml"
_INTERPOLATED = re.compile(r"\$(?:\$|\{?([A-Za-z_]\w*))")


@dataclass(frozen=True, slots=True)
class Request:
    """One variable that a task asks for: in which of its files, under which key (None: anywhere in the file).

    if_set: it is the driver's only when the driver has one of that name.
    """

    file: Path
    key: str | None
    variable: str
    if_set: bool = False


def requested_variables(task: Task) -> tuple[Request, ...]:
    """Everything in a task that is filled in from the driver's environment."""
    config = task.config
    wanted = [*_of_environment("environment", config.environment), *_of_verifier("verifier", config.verifier)]
    wanted += _of_table("solution.env", config.solution.env)
    for step in config.steps or []:
        wanted += _of_verifier(f"steps.{step.name}.verifier", step.verifier)
    requests = [Request(task.paths.config_path, key, variable) for key, variable in wanted]
    return (*requests, *_of_composition(task.task_dir / _COMPOSITION))


def refuse_unless_allowed(requests: Collection[Request], allowed: Collection[str]) -> None:
    """Raise TaskError for a variable that the run does not allow by name."""
    for request in requests:
        if request.variable in allowed or (request.if_set and request.variable not in os.environ):
            continue
        where = f"{request.file}: {request.key}" if request.key else str(request.file)
        raise TaskError(
            f"{where} asks for the driver's environment variable {request.variable}, which tasks of this run may not "
            f'read; if they may, add it to sandbox.pass_env: sandbox.pass_env=["{request.variable}"]'
        )


def _of_environment(section: str, environment: EnvironmentConfig) -> Iterator[tuple[str, str]]:
    yield from _of_table(f"{section}.env", environment.env)
    for server in environment.mcp_servers:
        for header, value in server.headers.items():
            for variable, _ in embedded_env_var_templates(value):
                yield f"{section}.mcp_servers.{server.name}.headers.{header}", variable


def _of_verifier(section: str, verifier: VerifierConfig) -> Iterator[tuple[str, str]]:
    yield from _of_table(f"{section}.env", verifier.env)
    if verifier.environment is not None:
        yield from _of_environment(f"{section}.environment", verifier.environment)


def _of_table(section: str, table: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        for variable, _ in get_required_host_vars({name: value}):
            yield f"{section}.{name}", variable


def _of_composition(file: Path) -> list[Request]:
    if not file.is_file():
        return []
    text = file.read_text(encoding="utf-8", errors="replace")
    return [Request(file, None, name, if_set=True) for name in sorted({*_INTERPOLATED.findall(text)} - {""})]
