"""Carrying out COPY, ADD and WORKDIR on a mounted file system, without any process in it."""

import os
import posixpath
import stat
from collections.abc import Sequence
from pathlib import Path

from drydock.errors import TaskError
from drydock.sandbox import kernel
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.dockerfile import Copy, MakeDirectory
from drydock.sandbox.transfer import kind_of, make_directory, put, upload_file

_LARGEST_ACCOUNT_FILE = 1 << 20


def carry_out(
    root: int, steps: Sequence[Copy | MakeDirectory], context: BuildContext, file: Path, id_base: int | None
) -> None:
    """Apply `steps` of Dockerfile `file` to the root directory.

    Ids are shifted by `id_base`; with None, files stay the driver's and --chown has no effect.
    """
    for step in steps:
        where = f"{file}:{step.line}"
        owner = None
        if id_base is not None:
            uid, gid = _owner(root, step.owner if isinstance(step, Copy) else "", where)
            owner = (uid + id_base, gid + id_base)
        if isinstance(step, Copy):
            _copy(root, step, context, where, owner)
        else:
            os.close(make_directory(root, step.path, owner))


def _copy(root: int, step: Copy, context: BuildContext, where: str, owner: tuple[int, int] | None) -> None:
    named = [path for pattern in step.sources for path in context.select(pattern, where)]
    if len(named) > 1 and not step.target.endswith("/"):
        raise TaskError(f"{where}: {len(named)} files are copied to one; end the target with /")
    for path in named:
        source = context.resolve(path)
        if source.is_dir():
            _copy_directory(root, path, step, context, owner)
        else:
            target = step.target
            if target.endswith("/") or kind_of(root, target) == stat.S_IFDIR:
                target = posixpath.join(target, posixpath.basename(path))
            upload_file(root, source, target, owner, step.mode)


def _copy_directory(root: int, path: str, step: Copy, context: BuildContext, owner: tuple[int, int] | None) -> None:
    os.close(make_directory(root, step.target, owner))
    for inner, entry in context.walk(path):
        target = posixpath.join(step.target, inner)
        if entry.is_dir(follow_symlinks=False):
            mode = step.mode or stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) & 0o777
            os.close(make_directory(root, target, owner, mode))
        else:
            parent = make_directory(root, posixpath.dirname(target), owner)
            try:
                put(Path(entry.path), parent, entry.name, owner, step.mode)
            finally:
                os.close(parent)


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
    descriptor = kernel.openat2(root, path.lstrip("/"), flags, 0, kernel.Resolve.IN_ROOT)
    try:
        text = os.read(descriptor, _LARGEST_ACCOUNT_FILE).decode(errors="replace")
    finally:
        os.close(descriptor)
    for line in text.splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) >= 4:
            return fields
    raise TaskError(f"{where}: --chown={name}: there is no such entry in {path} of the image")
