"""The files that COPY can reach: a task's environment directory, without what its .dockerignore leaves out."""

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from drydock.errors import TaskError

_CLASS = re.compile(r"\[([\^!]?)([^\]\\]+)\]")


@dataclass(frozen=True, slots=True)
class BuildContext:
    """A directory and the patterns of its .dockerignore, in order: (is exception, expression)."""

    directory: Path
    rules: tuple[tuple[bool, re.Pattern[str]], ...] = ()

    @classmethod
    def of(cls, directory: Path) -> "BuildContext":
        """The context of a task's environment directory; `Dockerfile.dockerignore` goes before `.dockerignore`."""
        for name in ("Dockerfile.dockerignore", ".dockerignore"):
            if (directory / name).is_file():
                lines = (directory / name).read_text().splitlines()
                break
        else:
            return cls(directory)
        rules = []
        for line in lines:
            text = line.strip()
            if text and not text.startswith("#"):
                exception = text.startswith("!")
                pattern = str(PurePosixPath(text.removeprefix("!").strip().strip("/") or "."))
                rules.append((exception, _expression(pattern)))
        return cls(directory, tuple(rules))

    def ignores(self, relative: str) -> bool:
        """Whether a path below the directory is left out; the last rule that fits it or a parent decides."""
        ignored = False
        for exception, expression in self.rules:
            if expression.match(relative):
                ignored = not exception
        return ignored

    def select(self, pattern: str, where: str) -> list[str]:
        """The paths that one source of a COPY names, sorted. Raises TaskError when there is none."""
        relative = pattern.lstrip("/").rstrip("/")
        if PurePosixPath(relative or ".") == PurePosixPath("."):
            return ["."]
        if any(letter in relative for letter in "*?["):
            found = sorted(path.relative_to(self.directory).as_posix() for path in self.directory.glob(relative))
        else:
            found = [PurePosixPath(relative).as_posix()] if os.path.lexists(self.directory / relative) else []
        found = [path for path in found if not self.ignores(path)]
        if not found:
            raise TaskError(f"{where}: {pattern} is not in the build context {self.directory}")
        for path in found:
            if not self.resolve(path).is_relative_to(self.directory.resolve()):
                raise TaskError(f"{where}: {path} leads out of the build context")
        return found

    def resolve(self, relative: str) -> Path:
        """The file or directory that a selected path leads to: a link named by a COPY is followed."""
        return (self.directory / relative).resolve()

    def walk(self, relative: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Everything below directory `relative` that is not ignored, parents first: (path below it, entry)."""
        top = self.directory / relative
        pending = [""]
        while pending:
            below = pending.pop()
            with os.scandir(top / below) as entries:
                for entry in sorted(entries, key=lambda item: item.name):
                    inner = f"{below}/{entry.name}" if below else entry.name
                    whole = inner if relative == "." else f"{relative}/{inner}"
                    ignored = self.ignores(whole)
                    if entry.is_dir(follow_symlinks=False) and not (ignored and not any(r[0] for r in self.rules)):
                        pending.append(inner)
                    if not ignored:
                        yield inner, entry

    def fingerprint(self, relative: str) -> str:
        """A hash of names, kinds, permissions and contents of what `relative` names."""
        digest = hashlib.sha256()
        path = self.resolve(relative)
        if not path.is_dir():
            digest.update(_line("", path))
        else:
            for inner, entry in sorted(self.walk(relative), key=lambda item: item[0]):
                digest.update(_line(inner, Path(entry.path)))
        return digest.hexdigest()


def _line(name: str, path: Path) -> bytes:
    status = path.lstat()
    if path.is_symlink():
        content = f"link {path.readlink()}"
    elif path.is_dir():
        content = "directory"
    else:
        content = _content_digest(
            str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev
        )
    return f"{name}\0{status.st_mode & 0o777:o}\0{content}\n".encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=8192)
def _content_digest(path: str, size: int, mtime_ns: int, ctime_ns: int, inode: int, device: int) -> str:
    """Hash of a file's bytes; the other arguments tell this version of the file from a later one."""
    with open(path, "rb") as file:  # noqa: PTH123
        return hashlib.file_digest(file, "sha256").hexdigest()


def _expression(pattern: str) -> re.Pattern[str]:
    """A .dockerignore pattern as an expression that also fits everything below what it names."""
    text = ""
    position = 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            text, position = text + "(?:.*/)?", position + 3
        elif pattern.startswith("**", position):
            text, position = text + ".*", position + 2
        elif pattern[position] == "*":
            text, position = text + "[^/]*", position + 1
        elif pattern[position] == "?":
            text, position = text + "[^/]", position + 1
        elif found := _CLASS.match(pattern, position):
            text, position = f"{text}[{'^' if found[1] else ''}{found[2]}]", found.end()
        elif pattern[position] == "\\" and position + 1 < len(pattern):
            text, position = text + re.escape(pattern[position + 1]), position + 2
        else:
            text, position = text + re.escape(pattern[position]), position + 1
    return re.compile(f"{text}(?:/.*)?$")
