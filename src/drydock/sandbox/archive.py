"""Unpacking a tar archive into a root directory, whatever the archive holds.

Every path is resolved by the kernel inside the root, so neither `..`, nor absolute names, nor links that the archive
plants and then writes through can lead out of it. Devices and pipes are left out; the amount is bounded.
"""

import contextlib
import lzma
import os
import posixpath
import stat
import tarfile
import zlib
from pathlib import Path
from typing import IO

from drydock.errors import TaskError
from drydock.sandbox import kernel
from drydock.sandbox.transfer import IN_ROOT, create_file, make_directory, put_link, relative

_PIECE = 1 << 20
_UNREADABLE = (
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""What a damaged or malicious archive ends in: its fields hold any number, its names any byte and any depth."""


def is_archive(file: Path) -> bool:
    """Whether `file` is a tar archive, plain or compressed by gzip, bzip2 or xz."""
    return file.is_file() and tarfile.is_tarfile(file)


def unpack(archive: Path, root: int, target: str, *, id_base: int | None, id_count: int, limit_bytes: int) -> None:
    """Unpack `archive` into directory `target` of the root directory.

    id_base: added to every owner, which must be from 0 and below `id_count`; None leaves files to the driver.
    Raises TaskError for an archive that cannot be read, is larger than `limit_bytes`, or holds nothing that fits.
    """
    left = limit_bytes
    try:
        with tarfile.open(archive) as members:
            for member in members:
                left -= max(member.size, 0)
                if left < 0:
                    raise TaskError(f"{archive}: the archive unpacks to more than {limit_bytes >> 20} MiB")
                for number in (member.uid, member.gid):
                    if not 0 <= number < id_count:
                        raise TaskError(f"{archive}: {member.name} belongs to id {number}, which no sandbox has")
                owner = None if id_base is None else (member.uid + id_base, member.gid + id_base)
                _place(members, member, root, posixpath.join(target, member.name.lstrip("/")), target, owner)
    except _UNREADABLE as error:
        raise TaskError(f"{archive}: the archive cannot be unpacked: {error}") from error


def _place(
    members: tarfile.TarFile,
    member: tarfile.TarInfo,
    root: int,
    path: str,
    target: str,
    owner: tuple[int, int] | None,
) -> None:
    if member.isdir():
        descriptor = make_directory(root, path, owner)
        try:
            if relative(path) != relative(target):
                _settle(descriptor, member, owner)
        finally:
            os.close(descriptor)
        return
    above, name = posixpath.split(relative(path))
    if name in ("", "."):
        return
    parent = make_directory(root, above or ".", owner)
    try:
        if member.issym():
            put_link(member.linkname, parent, name, owner)
        elif member.islnk():
            _hard_link(root, posixpath.join(target, member.linkname.lstrip("/")), parent, name)
        elif member.isfile():
            content = members.extractfile(member)
            if content is not None:
                _write(content, parent, name, member, owner)
    finally:
        os.close(parent)


def _write(content: IO[bytes], parent: int, name: str, member: tarfile.TarInfo, owner: tuple[int, int] | None) -> None:
    writer = create_file(parent, name)
    try:
        while piece := content.read(_PIECE):
            view = memoryview(piece)
            while view:
                view = view[os.write(writer, view) :]
        _settle(writer, member, owner)
    finally:
        os.close(writer)


def _settle(descriptor: int, member: tarfile.TarInfo, owner: tuple[int, int] | None) -> None:
    """Owner, permissions and time; the owner first, because changing it clears special bits."""
    if owner is not None:
        os.fchown(descriptor, *owner)
    os.fchmod(descriptor, stat.S_IMODE(member.mode))
    os.utime(descriptor, (member.mtime, member.mtime))


def _hard_link(root: int, existing: str, parent: int, name: str) -> None:
    above, source = posixpath.split(relative(existing))
    directory = kernel.openat2(root, above or ".", os.O_PATH | os.O_DIRECTORY, 0, IN_ROOT)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        os.link(source, name, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(directory)
