"""Whether the files of each task can be read by Harbor, and whether the sandbox can be made of its environment."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drydock.finding import Finding, Level
from drydock.rollout.task_folder import flaws_of
from drydock.training.rollout_config import SandboxConfig
from drydock.training.sandbox_ready import check_environments
from drydock.training.task_set import Task

LOOKED_AT = 2000
_SHOWN = 10


def check_task_files(tasks: Sequence[Task]) -> list[Finding]:
    """One finding: what is wrong with the tasks' files, by file and line.

    Looks at the first LOOKED_AT tasks: a task takes 5 to 15 ms, and some sets have tens of thousands.
    """
    looked_at = tasks[:LOOKED_AT]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        flaws = [flaw for found in threads.map(lambda task: flaws_of(task.path), looked_at) for flaw in found]
    if not flaws:
        shown = f"{len(looked_at)} of {len(tasks)}" if len(tasks) > len(looked_at) else f"{len(tasks)}"
        return [Finding("files", Level.PASS, f"{shown} tasks can be read")]
    more = f" and {len(flaws) - _SHOWN} more" if len(flaws) > _SHOWN else ""
    detail = f"{len(flaws)} flaws in the tasks: {'; '.join(flaws[:_SHOWN])}{more}"
    return [Finding("files", Level.FAIL, detail, "mend them or leave the tasks out")]


def check_task_environments(sandbox: SandboxConfig, folders: Sequence[Path]) -> list[Finding]:
    """Passes when a local sandbox can be made of each. Raises TaskError otherwise."""
    check_environments(sandbox, folders)
    return [Finding("environments", Level.PASS, f"{len(folders)} environments can be made here")]
