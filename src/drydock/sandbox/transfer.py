"""Files into and out of a sandbox, straight through its root directory, with no process in it involved.

Untrusted code may have planted links, pipes, giant or endless files, and may go on doing so meanwhile. Therefore
every path is resolved by the kernel inside the root (`openat2`), no link is ever followed on the host's side or
created there, only regular files are read, and the amount is bounded. A link that leads to a regular file of the
sandbox is downloaded as that file; any other link, and every special file, is left out.
"""

import contextlib
import errno
import os
import posixpath
import stat
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import SandboxError
from drydock.sandbox import kernel

IN_ROOT = kernel.Resolve.IN_ROOT | kernel.Resolve.NO_MAGICLINKS
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1 << 20
_DEEPEST = 200


@dataclass(slots=True)
class Budget:
    """What one transfer may still move."""

    bytes: int
    entries: int = 100_000

    def spend(self, amount: int) -> None:
        self.bytes -= amount
        if self.bytes < 0:
            raise SandboxError("the files to download are larger than `max_transfer_mb` allows")

    def count(self) -> None:
        self.entries -= 1
        if self.entries < 0:
            raise SandboxError("there are too many files to download")


def kind_of(root: int, path: str) -> int | None:
    """The type bits (`stat.S_IFMT`) of what `path` leads to inside the root, None when there is nothing."""
    try:
        descriptor = kernel.openat2(root, relative(path), os.O_PATH, 0, IN_ROOT)
    except OSError:
        return None
    try:
        return stat.S_IFMT(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def make_directory(root: int, path: str, owner: tuple[int, int] | None = None, mode: int = 0o755) -> int:
    """A descriptor of directory `path`, created with its missing parents where it does not exist."""
    path = relative(path)
    flags = os.O_RDONLY | os.O_DIRECTORY
    with contextlib.suppress(FileNotFoundError):
        return kernel.openat2(root, path, flags, 0, IN_ROOT)
    above, name = posixpath.split(path.rstrip("/"))
    parent = make_directory(root, above or ".", owner)
    created = False
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
            created = True
            if owner is not None:
                os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
        descriptor = kernel.openat2(root, path, flags, 0, IN_ROOT)
    finally:
        os.close(parent)
    if created:
        os.fchmod(descriptor, mode)  # mkdir takes away what the driver's umask says
    return descriptor


def clear_way_to(root: int, path: str, owner: tuple[int, int] | None = None) -> None:
    """Remove what is no directory, and leads to none, from the places where `path` and its parents are to be ones."""
    above, name = posixpath.split(relative(path).rstrip("/"))
    if above:
        clear_way_to(root, above, owner)
    if kind_of(root, path) == stat.S_IFDIR:
        return
    parent = make_directory(root, above or ".", owner)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
    finally:
        os.close(parent)


def upload_file(
    root: int, source: Path, target: str, owner: tuple[int, int] | None = None, mode: int | None = None
) -> None:
    """Copy one file of the host to `target`; into it, where that is a directory."""
    if kind_of(root, target) == stat.S_IFDIR:
        target = posixpath.join(target, source.name)
    above, name = posixpath.split(relative(target))
    parent = make_directory(root, above or ".", owner)
    try:
        put(source, parent, name, owner, mode)
    finally:
        os.close(parent)


def upload_directory(
    root: int, source: Path, target: str, owner: tuple[int, int] | None = None, mode: int | None = None
) -> None:
    """Copy what is in a directory of the host into directory `target`; links are copied as links."""
    pending = [(source, relative(target))]
    while pending:
        directory, inside = pending.pop()
        descriptor = make_directory(root, inside, owner, stat.S_IMODE(directory.stat().st_mode) & 0o777)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        _clear_way(descriptor, entry.name)
                        pending.append((Path(entry.path), posixpath.join(inside, entry.name)))
                    else:
                        put(Path(entry.path), descriptor, entry.name, owner, mode)
        finally:
            os.close(descriptor)


def put(source: Path, directory: int, name: str, owner: tuple[int, int] | None, mode: int | None) -> None:
    """Copy a file or link of the host to `name` in an open directory, in place of what is there."""
    if source.is_symlink():
        put_link(str(source.readlink()), directory, name, owner)
        return
    reader = os.open(source, _READ)  # a pipe that nobody writes to would otherwise be waited for
    try:
        if not stat.S_ISREG(os.fstat(reader).st_mode):
            raise SandboxError(f"{source} is no regular file and cannot be copied into a sandbox")
        put_open_file(reader, directory, name, owner, mode)
    finally:
        os.close(reader)


def put_open_file(reader: int, directory: int, name: str, owner: tuple[int, int] | None, mode: int | None) -> None:
    """Copy an open regular file to `name` in an open directory; mode None keeps its permissions."""
    status = os.fstat(reader)
    writer = create_file(directory, name)
    try:
        while os.sendfile(writer, reader, None, _PIECE):
            pass
        if owner is not None:
            os.fchown(writer, *owner)
        os.fchmod(writer, stat.S_IMODE(status.st_mode) & 0o777 if mode is None else mode)
    finally:
        os.close(writer)


def put_link(target: str, directory: int, name: str, owner: tuple[int, int] | None) -> None:
    """Make `name` in an open directory a symbolic link, in place of what is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    os.symlink(target, name, dir_fd=directory)
    if owner is not None:
        os.chown(name, *owner, dir_fd=directory, follow_symlinks=False)


def create_file(directory: int, name: str) -> int:
    """A descriptor of a new, empty file in place of what is there; it never opens what somebody put there meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=directory)


def download_file(root: int, source: str, target: Path, budget: Budget) -> None:
    """Copy one regular file of the sandbox to `target`; into it, where that is a directory."""
    descriptor = kernel.openat2(root, relative(source), _READ, 0, IN_ROOT)
    try:
        if target.is_dir():
            target = target / posixpath.basename(source.rstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        if not _take(descriptor, target, budget):
            raise SandboxError(f"{source} in the sandbox is no regular file")
    finally:
        os.close(descriptor)


def download_directory(root: int, source: str, target: Path, budget: Budget) -> None:
    """Copy what is in directory `source` of the sandbox into directory `target` of the host."""
    pending = [(relative(source), target, 0)]
    while pending:
        inside, outside, depth = pending.pop()
        descriptor = kernel.openat2(root, inside, os.O_RDONLY | os.O_DIRECTORY, 0, IN_ROOT)
        try:
            outside.mkdir(parents=True, exist_ok=True)
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    budget.count()
                    below = posixpath.join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if depth >= _DEEPEST:
                            raise SandboxError(f"directories below {source} are nested too deeply")
                        pending.append((below, outside / entry.name, depth + 1))
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        _take_path(root, below, outside / entry.name, budget)
        finally:
            os.close(descriptor)


def relative(path: str) -> str:
    """`path` as openat2 takes it below a root: without a slash in front and without `..`."""
    return posixpath.normpath("/" + path).lstrip("/") or "."


def _clear_way(directory: int, name: str) -> None:
    """Remove what stands where a directory is to be, unless it is one itself."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _take_path(root: int, source: str, target: Path, budget: Budget) -> None:
    try:
        descriptor = kernel.openat2(root, source, _READ, 0, IN_ROOT)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EACCES):
            return
        raise
    try:
        _take(descriptor, target, budget)
    finally:
        os.close(descriptor)


def _take(descriptor: int, target: Path, budget: Budget) -> bool:
    """Copy an open file to the host; False when it is not a regular file."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return False
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    writer = os.open(target, flags, 0o600)
    try:
        while moved := os.sendfile(writer, descriptor, None, _PIECE):
            budget.spend(moved)
        os.fchmod(writer, (stat.S_IMODE(status.st_mode) & 0o777) | 0o600)
    finally:
        os.close(writer)
    return True
