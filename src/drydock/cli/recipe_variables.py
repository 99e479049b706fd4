"""A run and its service as the published recipes name them in the environment.

Tasks and names: TRAIN_HARBOR_TASKS and EVAL_HARBOR_TASKS (paths joined by `:`), RUN_NAME, LOGGER, and STARTUP_TIMEOUT
(seconds for the job to run). Service: ARCTIC_CORTEX_BASE_URL or ARCTIC_CORTEX_HOST, with ARCTIC_CORTEX_DATABASE,
_SCHEMA and _ENDPOINT, and ARCTIC_CORTEX_JOB_COMMENT. The configuration wins, key by key; a service that it names wins
over the environment's whole.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

TASKS = {"TRAIN_HARBOR_TASKS": "data.train", "EVAL_HARBOR_TASKS": "data.eval"}
RUN = {"RUN_NAME": "trainer.run_name", "STARTUP_TIMEOUT": "deadlines.job_running_s"}
LOGGER = {"LOGGER": "trainer.logger"}
SERVICE = {
    "ARCTIC_CORTEX_BASE_URL": "service.base_url",
    "ARCTIC_CORTEX_HOST": "service.host",
    "ARCTIC_CORTEX_DATABASE": "service.database",
    "ARCTIC_CORTEX_SCHEMA": "service.schema",
    "ARCTIC_CORTEX_ENDPOINT": "service.endpoint",
    "ARCTIC_CORTEX_JOB_COMMENT": "service.job_comment",
}


def recipe_settings(
    variables: Mapping[str, str], given: Mapping[str, Any], *, on_tasks: bool
) -> dict[str, dict[str, Any]]:
    """What the variables say, as a tree to lie below what is `given`; relative paths are of the working directory.

    on_tasks: the run is one on Harbor tasks, not on conversations.
    """
    tree: dict[str, dict[str, Any]] = {}
    for name, key in _keys(on_tasks).items():
        text = variables.get(name, "").strip()
        section, _, setting = key.partition(".")
        service = given.get("service")
        named = isinstance(service, Mapping) and bool({"base_url", "host"} & set(service))
        if not text or (named and setting in ("base_url", "host")):
            continue
        paths = [str(Path(part.strip()).absolute()) for part in text.split(":") if part.strip()]
        tree.setdefault(section, {})[setting] = paths if name in TASKS else text
    return tree


def variables_named(text: str, variables: Mapping[str, str], *, on_tasks: bool) -> list[str]:
    """The variables that are set and whose key a message is about."""
    keys = _keys(on_tasks)
    return [name for name, key in keys.items() if variables.get(name, "").strip() and f"{key}:" in text]


def _keys(on_tasks: bool) -> dict[str, str]:
    return {**TASKS, **RUN, **LOGGER, **SERVICE} if on_tasks else {**RUN, **SERVICE}
