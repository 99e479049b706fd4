"""Deleting layers and outdated root file systems that nobody has asked for lately, oldest first.

What a living sandbox stands on is held (see `layer_store`) and stays; a layer that is wanted again is built again.
"""

import fcntl
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from drydock.file_lock import try_lock
from drydock.sandbox.layer_store import lock_file
from drydock.sandbox.system_store import outdated_systems

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in the cache, or a root file system; used_at: seconds since the epoch at which it was last asked for."""

    path: Path
    size_bytes: int
    used_at: float


@dataclass(frozen=True, slots=True)
class Pruning:
    """What was deleted (or would be), what was held by sandboxes, what is left."""

    deleted: tuple[Layer, ...]
    held: tuple[Layer, ...]
    kept: tuple[Layer, ...]


def prune_layers(
    cache_dir: Path, *, unused_days: float | None = None, keep_mb: float | None = None, dry_run: bool = False
) -> Pruning:
    """Delete layers and outdated root file systems not asked for in `unused_days`, then the oldest of them until the
    rest takes at most `keep_mb`."""
    deleted: list[Layer] = []
    held: list[Layer] = []
    found = sorted([*list_layers(cache_dir), *map(_measure, outdated_systems(cache_dir))], key=_by_age)
    total = sum(layer.size_bytes for layer in found)
    for layer in found:
        old = unused_days is not None and time.time() - layer.used_at > unused_days * _DAY_S
        too_much = keep_mb is not None and total > keep_mb * (1 << 20)
        if not (old or too_much):
            continue
        lock = try_lock(lock_file(layer.path), fcntl.LOCK_EX)
        if lock is None:
            held.append(layer)
            continue
        try:
            if not dry_run:
                doomed = layer.path.with_name(f".{layer.path.name}.pruned")
                layer.path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
                lock_file(layer.path).unlink(missing_ok=True)
        finally:
            os.close(lock)
        deleted.append(layer)
        total -= layer.size_bytes
    gone = {layer.path for layer in (*deleted, *held)}
    return Pruning(tuple(deleted), tuple(held), tuple(layer for layer in found if layer.path not in gone))


def list_layers(cache_dir: Path) -> list[Layer]:
    """Every layer of the cache, the one unused longest first."""
    store = cache_dir / "layers"
    if not store.is_dir():
        return []
    found = [_measure(path) for path in store.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(found, key=_by_age)


def _by_age(layer: Layer) -> tuple[float, str]:
    return layer.used_at, layer.path.name


def _measure(layer: Path) -> Layer:
    size = 0
    pending = [str(layer)]
    seen: set[int] = set()
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if status.st_ino not in seen:
                    seen.add(status.st_ino)
                    size += status.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    lock = lock_file(layer)
    return Layer(layer, size, (lock if lock.exists() else layer).stat().st_mtime)
