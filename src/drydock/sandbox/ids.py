"""Which ids of the driver's machine stand for the ids inside a sandbox.

Inside, ids start at 0. Outside, they are 100000 and up where the driver has those (a driver that is root of the
machine); a driver in a user namespace of its own takes what follows 0 there (see `rootless`).
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import SandboxUnavailable

_PREFERRED_BASE = 100_000
_PREFERRED_COUNT = 65_536
_LEAST_COUNT = 65_535
"""`nobody`, 65534, must be among them."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """base: id outside of uid and gid 0 inside; count: how many ids a sandbox has."""

    base: int
    count: int


@functools.cache
def id_range() -> IdRange:
    """The range that sandboxes of this process have. Raises SandboxUnavailable when the process has too few ids."""
    found = [_range_in(Path(f"/proc/self/{name}_map").read_text()) for name in ("uid", "gid")]
    chosen = min(found, key=lambda item: (item.base, item.count))
    if chosen.count < _LEAST_COUNT:
        raise SandboxUnavailable(
            f"a sandbox needs {_LEAST_COUNT} user and group ids, and this process may give it {chosen.count}: run as "
            "root, or give the user ids in /etc/subuid and /etc/subgid (`usermod --add-subuids 100000-165535 "
            "--add-subgids 100000-165535 NAME`)"
        )
    return chosen


def _range_in(id_map: str) -> IdRange:
    """The best range in an id map of lines `first outside count`: the usual one, else the longest without 0."""
    best = IdRange(1, 0)
    for line in id_map.splitlines():
        first, _, count = map(int, line.split())
        if first <= _PREFERRED_BASE and first + count >= _PREFERRED_BASE + _PREFERRED_COUNT:
            return IdRange(_PREFERRED_BASE, _PREFERRED_COUNT)
        base = max(first, 1)
        usable = min(first + count - base, _PREFERRED_COUNT)
        if usable > best.count:
            best = IdRange(base, usable)
    return best


def in_initial_user_namespace() -> bool:
    """Whether this process has all ids, as only processes outside every user namespace have."""
    first, outside, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    return (first, outside, count) == (0, 0, 4_294_967_295)
