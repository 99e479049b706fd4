"""The few Linux system calls that the standard library does not wrap.

Only what the sandbox needs: mounting, entering and leaving namespaces, and `openat2`, which resolves a path
inside a root directory without ever following a link out of it. Each wrapper raises OSError as `os` would.
"""

import ctypes
import os
import struct
from enum import IntFlag

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_SYS_OPENAT2 = 437  # the same number on every architecture

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000


class Mount(IntFlag):
    """Flags of mount(2)."""

    RDONLY = 1
    NOSUID = 2
    NODEV = 4
    REMOUNT = 0x20
    BIND = 0x1000
    REC = 0x4000
    PRIVATE = 1 << 18


class Resolve(IntFlag):
    """Flags of openat2(2), see the manual page."""

    NO_MAGICLINKS = 0x02
    IN_ROOT = 0x10


MNT_DETACH = 2


def _check(result: int, subject: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), subject)
    return result


def mount(source: str, target: str, filesystem: str | None, flags: int = 0, options: str = "") -> None:
    """mount(2): attach `source` of type `filesystem` at `target`."""
    _check(
        _libc.mount(
            source.encode(),
            os.fsencode(target),
            filesystem.encode() if filesystem else None,
            ctypes.c_ulong(flags),
            os.fsencode(options) if options else None,
        ),
        target,
    )


def unmount(target: str) -> None:
    """umount2(2), detaching at once and freeing the file system when its last user is gone."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), target)


def unshare(flags: int) -> None:
    """unshare(2) for the calling thread."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """setns(2) for the calling thread: enter the namespace that `fd` (a pidfd or a /proc/*/ns file) names."""
    _check(_libc.setns(fd, kind), "setns")


def openat2(directory: int, path: str, flags: int, mode: int, resolve: Resolve) -> int:
    """openat2(2): open `path` below `directory` under the given resolution rules; retries when raced by a rename."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, resolve)
    for attempt in range(64):
        fd = _libc.syscall(_SYS_OPENAT2, directory, os.fsencode(path), how, ctypes.c_size_t(len(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (11, 4) or attempt == 63:  # EAGAIN: a component moved during the walk; EINTR
            raise OSError(code, os.strerror(code), path)
    raise AssertionError
