"""Bounds on a sandbox as a whole, by the kernel's control groups: memory, processor, number of processes.

Both versions are used as they are found: version 1 where a controller is mounted on its own, version 2 otherwise. A
sandbox has one group per hierarchy, named after it, below the driver's own group or the nearest one above that may
have children with these controllers. Where none may (an ordinary user, a container without its own groups), the bounds
per process of `limits` are all there is; `drydock doctor` says so.
"""

import contextlib
import errno
import functools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD_US = 100_000
_REMOVAL_WAIT_S = 2.0
_PREFIX = "drydock-"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """memory_mb: of all processes together with files in memory; cpus: processors' worth of time; None is no bound."""

    memory_mb: int | None = None
    cpus: float | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """Where groups can be made: a directory of a hierarchy, its version, and the controllers it has."""

    directory: Path
    version: int
    controllers: tuple[str, ...]


@dataclass(slots=True)
class ControlGroup:
    """The groups of one sandbox."""

    name: str
    parents: tuple[Parent, ...]
    _oom_kills: int = field(default=0, init=False)
    _entrances: list[int] = field(default_factory=list, init=False)

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(parent.directory / f"{_PREFIX}{self.name}" for parent in self.parents)

    def create(self, limits: GroupLimits) -> None:
        """Make the groups and set `limits`."""
        for parent, directory in zip(self.parents, self.directories, strict=True):
            directory.mkdir(exist_ok=True)
            for name, value in group_settings(parent, limits).items():
                file = directory / name
                if file.exists() or not name.endswith(("swap.max", "memsw.limit_in_bytes")):
                    file.write_text(value)
            self._entrances.append(os.open(directory / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))

    def add(self, pid: int) -> None:
        """Put a process in; what it starts from then on is in the groups too. Needs no view of the file system."""
        for entrance in self._entrances:
            os.write(entrance, str(pid).encode())

    def remove(self) -> None:
        """Remove the groups; their processes are dead."""
        while self._entrances:
            os.close(self._entrances.pop())
        for directory in self.directories:
            remove_group(directory, self.name)

    def new_oom_kills(self) -> int:
        """How many processes were killed for the bound on memory since the last call."""
        for parent, directory in zip(self.parents, self.directories, strict=True):
            if "memory" in parent.controllers:
                file = directory / ("memory.oom_control" if parent.version == 1 else "memory.events")
                with contextlib.suppress(OSError):
                    counts = dict(line.split() for line in file.read_text().splitlines())
                    before, self._oom_kills = self._oom_kills, int(counts.get("oom_kill", 0))
                    return self._oom_kills - before
        return 0


def remove_group(directory: Path, name: str) -> bool:
    """Remove a group of sandbox `name`, waiting a moment for its last process; False when there is none."""
    if directory.name != f"{_PREFIX}{name}":
        return False
    give_up = time.monotonic() + _REMOVAL_WAIT_S
    while True:
        try:
            directory.rmdir()
            return True
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > give_up:
                return False
            time.sleep(0.005)


@functools.cache
def group_parents() -> tuple[Parent, ...]:
    """Where this process can make groups; a controller that cannot be had is in none of them."""
    own = own_groups(Path("/proc/self/cgroup").read_text())
    mounts = list(hierarchies(Path("/proc/self/mountinfo").read_text()))
    found: list[Parent] = []
    missing: set[str] = set(CONTROLLERS)
    for version, directory, root, controllers in mounts:
        wanted = tuple(name for name in CONTROLLERS if name in missing and (version == 2 or name in controllers))
        path = own.get("" if version == 2 else next(iter(controllers), ""))
        if not wanted or path is None or not _below(path, root):
            continue
        place = directory / os.path.relpath(path, root)
        parent = _parent_v1(place, wanted) if version == 1 else _parent_v2(place, directory, wanted)
        if parent is not None:
            found.append(parent)
            missing -= set(parent.controllers)
    return tuple(found)


def available(controller: str) -> bool:
    """Whether sandboxes of this process are bounded by a controller."""
    return any(controller in parent.controllers for parent in group_parents())


def group_settings(parent: Parent, limits: GroupLimits) -> Mapping[str, str]:
    """File to value, in the order in which they must be written."""
    found: dict[str, str] = {}
    if limits.memory_mb is not None and "memory" in parent.controllers:
        size = str(limits.memory_mb << 20)
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if parent.version == 1 else ("memory.max",)
        found |= dict.fromkeys(names, size)
        if parent.version == 2:
            found["memory.swap.max"] = "0"
    if limits.cpus is not None and "cpu" in parent.controllers:
        quota = max(1000, round(limits.cpus * _PERIOD_US))
        if parent.version == 1:
            found |= {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
        else:
            found["cpu.max"] = f"{quota} {_PERIOD_US}"
    if limits.processes is not None and "pids" in parent.controllers:
        found["pids.max"] = str(limits.processes)
    return found


def own_groups(text: str) -> dict[str, str]:
    """Controller to path of this process's group from /proc/self/cgroup; "" is version 2."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found


def hierarchies(text: str) -> Iterator[tuple[int, Path, str, tuple[str, ...]]]:
    """(version, where it is mounted, what of it, controllers) of every hierarchy in /proc/self/mountinfo, v1 first."""
    rows = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split()
            names = tuple(name for name in options.split(",") if name in CONTROLLERS)
            rows.append((1 if kind == "cgroup" else 2, Path(fields[4]), fields[3], names))
    yield from sorted(rows, key=lambda row: row[0])


def _below(path: str, root: str) -> bool:
    return root == "/" or path == root or path.startswith(f"{root}/")


def _parent_v1(place: Path, wanted: tuple[str, ...]) -> Parent | None:
    return Parent(place, 1, wanted) if _can_have_children(place) else None


def _parent_v2(place: Path, top: Path, wanted: tuple[str, ...]) -> Parent | None:
    """The nearest group from `place` up that gives its children all that it can of what is wanted."""
    while True:
        with contextlib.suppress(OSError):
            offered = (place / "cgroup.controllers").read_text().split()
            usable = tuple(name for name in wanted if name in offered)
            given = (place / "cgroup.subtree_control").read_text().split()
            absent = [name for name in usable if name not in given]
            if usable and absent:  # refused where processes are in the group itself
                (place / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in absent))
            if usable and _can_have_children(place):
                return Parent(place, 2, usable)
        if place == top or place == place.parent:
            return None
        place = place.parent


def _can_have_children(place: Path) -> bool:
    probe = place / f"{_PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True
