"""Where sandboxes are mounted: a mount namespace of the driver's own, entered by one thread.

Overlays are mounted and sandboxes are started on that thread only. The host never sees these mounts, and they cannot
outlive the driver and its sandboxes: the kernel drops the namespace with its last process. The writable layer is a
size-limited tmpfs (nothing to delete afterwards, no disk filled) or, on request, a directory on disk.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import SandboxError, SandboxUnavailable
from drydock.sandbox import kernel
from drydock.sandbox.ids import id_range, in_initial_user_namespace

_COVERED = "/sys"
"""The directory hidden below the mounts, in this namespace: everybody may pass through it, and no launch needs it."""

_LONGEST_OPTIONS = 4095
_INODES_PER_MB = 256


@dataclass(frozen=True, slots=True)
class Overlay:
    """A mounted overlay. `path` means something on the mount thread only, `root` (an O_PATH descriptor) everywhere."""

    directory: Path
    root: int

    @property
    def path(self) -> Path:
        return self.directory / "root"


async def on_mount_thread[T](action: Callable[..., T], *args: object) -> T:
    """Run `action(*args)` on the mount thread; raises SandboxUnavailable where mounting is not allowed."""
    return await asyncio.get_running_loop().run_in_executor(_mount_thread(), functools.partial(action, *args))


@functools.cache
def _mount_thread() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(1, thread_name_prefix="sandbox-mounts")
    pool.submit(_enter_own_namespace).result()
    return pool


def _enter_own_namespace() -> None:
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("none", "/", None, kernel.Mount.REC | kernel.Mount.PRIVATE)
        flags = kernel.Mount.NODEV | kernel.Mount.NOSUID
        kernel.mount("drydock-sandboxes", _COVERED, "tmpfs", flags, "mode=755,size=16m")
    except OSError as error:
        raise SandboxUnavailable(
            f"the local sandbox needs to mount file systems, which is refused here ({error.strerror}): run as root"
        ) from error


def mount_overlay(name: str, lower: Sequence[Path], *, size_mb: int, disk: Path | None = None) -> Overlay:
    """Mount a writable view of `lower` (topmost first) under a name that is unique in this process.

    size_mb: bound on what can be written, where the writable layer is in memory.
    disk: a directory that holds the writable layer (`upper`) instead. Call on the mount thread.
    """
    directory = Path(_COVERED, name)
    directory.mkdir()
    try:
        if disk is None:
            options = f"mode=755,size={size_mb}m,nr_inodes={size_mb * _INODES_PER_MB}"
            kernel.mount(f"drydock-{name}", str(directory), "tmpfs", kernel.Mount.NODEV, options)
        else:
            (directory / "disk").symlink_to(disk)
        writable = directory if disk is None else directory / "disk"
        root = directory / "root"
        for entry in (root, writable / "upper", writable / "work"):
            entry.mkdir()
        (writable / "upper").chmod(0o755)
        os.chown(writable / "upper", id_range().base, id_range().base)
        below = ":".join(_alias(path) for path in lower)
        options = f"lowerdir={below},upperdir={writable}/upper,workdir={writable}/work,volatile"
        if not in_initial_user_namespace():
            options += ",userxattr"
        if len(os.fsencode(options)) > _LONGEST_OPTIONS:
            raise SandboxError(f"{len(lower)} layers are too many for one overlay: join RUN lines of the Dockerfile")
        try:
            kernel.mount(f"drydock-{name}", str(root), "overlay", kernel.Mount.NODEV, options)
        except OSError as error:
            if disk is None:
                raise
            raise SandboxUnavailable(
                f"the file system of {disk} cannot hold what sandboxes write ({error.strerror}); overlays (as /tmp of "
                "containers is), NFS and FAT cannot: choose another sandbox.state_dir, or sandbox.kwargs.storage=memory"
            ) from error
        return Overlay(directory, os.open(root, os.O_PATH | os.O_DIRECTORY))
    except BaseException:
        _remove(directory)
        raise


def seal(pid: int, path: str) -> None:
    """Make directory `path` read-only in the mount namespace of process `pid`, for root there too.

    It is bound over itself, so that it can be neither moved nor removed. Call on the mount thread.
    """
    own = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    inside = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    kept = kernel.Mount.NODEV | kernel.Mount.NOSUID
    try:
        kernel.setns(inside, kernel.CLONE_NEWNS)
        try:
            kernel.mount(path, path, None, kernel.Mount.BIND | kernel.Mount.REC)
            kernel.mount(path, path, None, kernel.Mount.REMOUNT | kernel.Mount.BIND | kernel.Mount.RDONLY | kept)
        finally:
            kernel.setns(own, kernel.CLONE_NEWNS)
    finally:
        os.close(inside)
        os.close(own)


def unmount_overlay(overlay: Overlay) -> None:
    """Take the overlay away; a writable layer in memory is gone with it. Call on the mount thread."""
    os.close(overlay.root)
    _remove(overlay.directory)


def _remove(directory: Path) -> None:
    for target in (directory / "root", directory):
        with contextlib.suppress(OSError):
            kernel.unmount(str(target))
    with contextlib.suppress(OSError):
        (directory / "disk").unlink()
    for target in (directory / "root", directory):
        with contextlib.suppress(OSError):
            target.rmdir()


def _alias(path: Path) -> str:
    """A short name for a layer: keeps the options short, and the host's paths out of the sandbox's mount table."""
    alias = Path(_COVERED, hashlib.sha256(os.fsencode(path)).hexdigest()[:16])
    with contextlib.suppress(FileExistsError):
        alias.symlink_to(path)
    return str(alias)
