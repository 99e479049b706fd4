"""Carrying out COPY, ADD and WORKDIR on a mounted file system, without any process in it."""

import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from drydock.errors import TaskError
from drydock.sandbox import kernel
from drydock.sandbox.archive import is_archive, unpack
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.copy_source import ContextSource, CopySource, Owner, RootSource
from drydock.sandbox.dockerfile_plan import Copy, MakeDirectory
from drydock.sandbox.file_modes import apply_mode
from drydock.sandbox.ids import IdRange
from drydock.sandbox.transfer import IN_ROOT, create_file, kind_of, make_directory

_LARGEST_ACCOUNT_FILE = 1 << 20
_LARGEST_ARCHIVE = 8 << 30


def carry_out(
    root: int,
    steps: Sequence[Copy | MakeDirectory],
    context: BuildContext,
    file: Path,
    ids: IdRange | None,
    stages: Mapping[str | int, int] | None = None,
) -> None:
    """Apply `steps` of Dockerfile `file` to the root directory.

    ids: what owners are shifted into; with None, files stay the driver's and --chown has no effect.
    stages: root directories of the stages and images that the steps copy from.
    """
    for step in steps:
        where = f"{file}:{step.line}"
        owner = None
        if ids is not None:
            uid, gid = _owner(root, step.owner if isinstance(step, Copy) else "", where)
            owner = (uid + ids.base, gid + ids.base)
        if isinstance(step, MakeDirectory):
            os.close(make_directory(root, step.path, owner))
        elif step.stage is None:
            _copy(root, step, ContextSource(context), where, owner, ids)
        else:
            _copy(root, step, RootSource((stages or {})[step.stage]), where, owner, ids)


def _copy(root: int, step: Copy, source: CopySource, where: str, owner: Owner, ids: IdRange | None) -> None:
    named = [path for pattern in step.sources for path in source.select(pattern, where)]
    if len(named) > 1 and not step.target.endswith("/"):
        raise TaskError(f"{where}: {len(named)} files are copied to one; end the target with /")
    for path in named:
        if source.is_directory(path):
            _copy_directory(root, path, step, source, owner)
        elif step.unpack and isinstance(source, ContextSource) and is_archive(source.file(path)):
            os.close(make_directory(root, step.target, owner))
            base, count = (ids.base, ids.count) if ids else (None, 1 << 31)
            unpack(source.file(path), root, step.target, id_base=base, id_count=count, limit_bytes=_LARGEST_ARCHIVE)
        else:
            parent, name = _place(root, step.target, posixpath.basename(path), owner)
            try:
                source.put(path, parent, name, owner, _mode(step, source.mode(path)))
            finally:
                os.close(parent)
    for name, text in step.texts:
        _write_text(root, step, name, text, owner)


def _copy_directory(root: int, path: str, step: Copy, source: CopySource, owner: Owner) -> None:
    os.close(make_directory(root, step.target, owner))
    for inner, mode in source.walk(path):
        target = posixpath.join(step.target, inner)
        whole = posixpath.join(path, inner)
        if stat.S_ISDIR(mode):
            wanted = apply_mode(step.mode, stat.S_IMODE(mode) & 0o777, directory=True)
            os.close(make_directory(root, target, owner, wanted))
            continue
        parent = make_directory(root, posixpath.dirname(target), owner)
        try:
            if stat.S_ISLNK(mode):
                source.put_link(whole, parent, posixpath.basename(target), owner)
            elif stat.S_ISREG(mode):
                source.put(whole, parent, posixpath.basename(target), owner, _mode(step, stat.S_IMODE(mode) & 0o777))
        finally:
            os.close(parent)


def _write_text(root: int, step: Copy, name: str, text: str, owner: Owner) -> None:
    parent, name = _place(root, step.target, name, owner)
    try:
        with os.fdopen(create_file(parent, name), "wb") as file:
            file.write(text.encode())
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), _mode(step, 0o644))
    finally:
        os.close(parent)


def _place(root: int, target: str, name: str, owner: Owner) -> tuple[int, str]:
    """The open directory and the name in it that a file copied to `target` gets."""
    if target.endswith("/") or kind_of(root, target) == stat.S_IFDIR:
        target = posixpath.join(target, name)
    above, name = posixpath.split(target)
    return make_directory(root, above, owner), name


def _mode(step: Copy, mode: int) -> int:
    return apply_mode(step.mode, mode, directory=False)


def _owner(root: int, text: str, where: str) -> tuple[int, int]:
    """uid and gid of a --chown value, names looked up in the root's own files."""
    if not text:
        return 0, 0
    user, _, group = text.partition(":")
    if user.isdigit():
        uid, gid = int(user), int(user)
    else:
        fields = _account(root, "/etc/passwd", user, where)
        uid, gid = int(fields[2]), int(fields[3])
    if group:
        gid = int(group) if group.isdigit() else int(_account(root, "/etc/group", group, where)[2])
    return uid, gid


def _account(root: int, path: str, name: str, where: str) -> list[str]:
    flags = os.O_RDONLY | os.O_NONBLOCK
    descriptor = kernel.openat2(root, path.lstrip("/"), flags, 0, IN_ROOT)
    try:
        text = os.read(descriptor, _LARGEST_ACCOUNT_FILE).decode(errors="replace")
    finally:
        os.close(descriptor)
    for line in text.splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) >= (4 if path == "/etc/passwd" else 3):
            return fields
    raise TaskError(f"{where}: --chown={name}: there is no such entry in {path} of the image")
