"""The cache of layers on disk: each appears by one rename, is built by one driver at a time, and is kept while used.

A lock file per layer carries all of it, across processes: exclusive while the layer is built or removed, shared while
sandboxes stand on it. A process holds one descriptor for each layer that it uses, however many sandboxes use it. The
time of the lock file says when the layer was last asked for.
"""

import asyncio
import fcntl
import functools
import os
import shutil
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.file_lock import try_lock
from drydock.sandbox.transfer_pool import in_transfer_pool

_LOCK_POLL_S = 0.02


@dataclass(slots=True)
class _Lease:
    descriptor: int
    count: int = 1


class LayerStore:
    """Layers in `directory` by name; get it from `layer_store`, so that a process has one for a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._leases: dict[str, _Lease] = {}
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def held(self) -> int:
        """How many layers this process holds."""
        return len(self._leases)

    async def acquire(self, name: str, build: Callable[[Path], Coroutine[Any, Any, None]]) -> Path:
        """The directory of a layer, built by `build(directory)` where it is missing; `release` gives it back."""
        layer = self.directory / name
        while not self._take(name):
            lock = try_lock(lock_file(layer), fcntl.LOCK_EX)
            if lock is None:
                await asyncio.sleep(_LOCK_POLL_S)
                continue
            try:
                if not layer.is_dir():
                    await in_transfer_pool(remove_unfinished, layer)
                    await build(layer)
            finally:
                os.close(lock)
        return layer

    def acquire_existing(self, names: Iterable[str]) -> tuple[Path, ...] | None:
        """The directories of layers that are all there, or None, and then none is held."""
        taken: list[Path] = []
        for name in names:
            if not self._take(name):
                self.release(taken)
                return None
            taken.append(self.directory / name)
        return tuple(taken)

    def release(self, layers: Iterable[Path]) -> None:
        """Give layers back; paths outside the store are ignored, so that a whole stack can be given."""
        for layer in layers:
            lease = self._leases.get(layer.name) if layer.parent == self.directory else None
            if lease is None:
                continue
            lease.count -= 1
            if lease.count == 0:
                del self._leases[layer.name]
                os.close(lease.descriptor)

    def _take(self, name: str) -> bool:
        """Hold a layer that is there; False when it is missing or is being built or removed."""
        lease = self._leases.get(name)
        if lease is None:
            if not (self.directory / name).is_dir():
                return False
            descriptor = try_lock(lock_file(self.directory / name), fcntl.LOCK_SH)
            if descriptor is None:
                return False
            if not (self.directory / name).is_dir():
                os.close(descriptor)
                return False
            self._leases[name] = _Lease(descriptor)
            os.utime(descriptor)
        else:
            lease.count += 1
            os.utime(lease.descriptor)
        return True


@functools.cache
def layer_store(directory: Path) -> LayerStore:
    """The store of this process for a directory."""
    return LayerStore(directory)


def lock_file(layer: Path) -> Path:
    """The lock file of a layer, whether or not it exists."""
    return layer.with_name(f".{layer.name}.lock")


def remove_unfinished(layer: Path) -> bool:
    """Delete what a killed driver left of its build of `layer`, whose exclusive lock the caller holds."""
    found = [path for path in layer.parent.glob(f".{layer.name}.*") if path.is_dir()]
    for staging in found:
        shutil.rmtree(staging, ignore_errors=True)
    return bool(found)
