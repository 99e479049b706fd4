"""How a trusted trial sees the driver's own machine: everything in its place, but for directories of the trial's own.

The root is a fresh tmpfs into which each top-level entry of the real / is bound, except those that belong to the trial
(`/app`, `/logs`, `/tests`, ... and what its Dockerfile adds at the top level). Nothing is created in the real /, and no
trial sees another's files; everything else is the host, writable as the driver's user may write it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from drydock.errors import TaskError
from drydock.sandbox.dockerfile_plan import Copy, MakeDirectory, Plan

PRIVATE = ("app", "logs", "skills", "solution", "tests", "tmp")
"""Top-level directories that every trial has to itself."""


def private_directories(plan: Plan | None, workdir: str) -> tuple[str, ...]:
    """The trial's own top-level directories.

    Raises TaskError, naming the Dockerfile's line, for a COPY or WORKDIR below a directory of the host's.
    """
    names: set[str] = set(PRIVATE)
    targets = [(workdir, "the task's workdir")]
    if plan is not None:
        for step in plan.result.steps:
            if isinstance(step, MakeDirectory | Copy):
                target = step.target if isinstance(step, Copy) else step.path
                targets.append((target, f"{plan.file}:{step.line}"))
    for target, where in targets:
        parts = Path(target).parts[1:]
        if not parts or parts[0] in names:
            continue
        if os.path.lexists(f"/{parts[0]}"):
            if where != "the task's workdir":
                raise TaskError(
                    f"{where}: {target} is in the host's own /{parts[0]}, which the host sandbox leaves alone"
                )
        else:
            names.add(parts[0])
    return tuple(sorted(names))


def host_view(private: Path, names: Iterable[str]) -> list[str]:
    """Bubblewrap options for the view, with directory `private`/NAME shown as /NAME for each of `names`."""
    own = set(names)
    options = ["--unshare-pid", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    for entry in sorted(Path("/").iterdir()):
        if entry.name in own:
            continue
        if entry.is_symlink():
            options += ["--symlink", str(entry.readlink()), str(entry)]
        elif entry.name == "proc":
            options += ["--proc", "/proc"]
        else:
            options += ["--dev-bind", str(entry), str(entry)]
    for name in sorted(own):
        options += ["--bind", str(private / name), f"/{name}"]
    return [*options, "--chdir", "/"]
