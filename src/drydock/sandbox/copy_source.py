"""What COPY can copy from: the build context, or the file system of another stage or image."""

import fnmatch
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drydock.errors import TaskError
from drydock.sandbox import kernel
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.transfer import IN_ROOT, kind_of, put_link, put_open_file, relative

type Owner = tuple[int, int] | None

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_DEEPEST = 200


class CopySource(Protocol):
    """Paths are relative to the source's root; `walk` gives those below a directory, parents first, links too."""

    def select(self, pattern: str, where: str) -> list[str]: ...

    def is_directory(self, path: str) -> bool: ...

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        """(path below `path`, st_mode) of each entry."""
        ...

    def mode(self, path: str) -> int:
        """Permission bits of the file or directory that `path` leads to."""
        ...

    def put(self, path: str, directory: int, name: str, owner: Owner, mode: int | None) -> None:
        """Copy the file that `path` leads to."""
        ...

    def put_link(self, path: str, directory: int, name: str, owner: Owner) -> None:
        """Copy the link that `path` is."""
        ...


@dataclass(frozen=True, slots=True)
class ContextSource:
    """The build context on the driver's machine."""

    context: BuildContext

    def select(self, pattern: str, where: str) -> list[str]:
        return self.context.select(pattern, where)

    def is_directory(self, path: str) -> bool:
        return self.context.resolve(path).is_dir()

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        for inner, entry in self.context.walk(path):
            yield inner, entry.stat(follow_symlinks=False).st_mode

    def mode(self, path: str) -> int:
        return stat.S_IMODE(self.file(path).stat().st_mode) & 0o777

    def put(self, path: str, directory: int, name: str, owner: Owner, mode: int | None) -> None:
        with self.file(path).open("rb") as reader:
            put_open_file(reader.fileno(), directory, name, owner, mode)

    def put_link(self, path: str, directory: int, name: str, owner: Owner) -> None:
        put_link(str((self.context.directory / path).readlink()), directory, name, owner)

    def file(self, path: str) -> Path:
        return self.context.resolve(path)


@dataclass(frozen=True, slots=True)
class RootSource:
    """The mounted file system of a stage, by its root directory. The task's programs made it: no link is trusted."""

    root: int

    def select(self, pattern: str, where: str) -> list[str]:
        """The paths that fit, sorted. Raises TaskError when there is none."""
        found = [""]
        for part in relative(pattern).split("/"):
            if any(letter in part for letter in "*?["):
                found = [posixpath.join(p, n) for p in found for n in self._names(p) if fnmatch.fnmatchcase(n, part)]
            else:
                found = [posixpath.join(path, part) for path in found]
                found = [path for path in found if kind_of(self.root, path) is not None]
        if not found:
            raise TaskError(f"{where}: {pattern} is not in the stage or image that is copied from")
        return sorted(found)

    def is_directory(self, path: str) -> bool:
        return kind_of(self.root, path) == stat.S_IFDIR

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        pending = [("", 0)]
        while pending:
            below, depth = pending.pop()
            if depth > _DEEPEST:
                raise TaskError(f"directories below {path} are nested too deeply")
            descriptor = self._open(posixpath.join(path, below), os.O_RDONLY | os.O_DIRECTORY)
            try:
                with os.scandir(descriptor) as entries:
                    for entry in sorted(entries, key=lambda item: item.name):
                        inner = posixpath.join(below, entry.name)
                        mode = entry.stat(follow_symlinks=False).st_mode
                        if stat.S_ISDIR(mode):
                            pending.append((inner, depth + 1))
                        yield inner, mode
            finally:
                os.close(descriptor)

    def mode(self, path: str) -> int:
        descriptor = self._open(path, os.O_PATH)
        try:
            return stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777
        finally:
            os.close(descriptor)

    def put(self, path: str, directory: int, name: str, owner: Owner, mode: int | None) -> None:
        descriptor = self._open(path, _READ)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                put_open_file(descriptor, directory, name, owner, mode)
        finally:
            os.close(descriptor)

    def put_link(self, path: str, directory: int, name: str, owner: Owner) -> None:
        above, link = posixpath.split(path)
        descriptor = self._open(above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            put_link(os.readlink(link, dir_fd=descriptor), directory, name, owner)
        finally:
            os.close(descriptor)

    def _names(self, path: str) -> list[str]:
        if not self.is_directory(path):
            return []
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.listdir(descriptor)  # noqa: PTH208
        finally:
            os.close(descriptor)

    def _open(self, path: str, flags: int) -> int:
        return kernel.openat2(self.root, relative(path), flags, 0, IN_ROOT)
