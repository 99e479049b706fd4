"""Root file systems from tarballs and to tarballs, for machines that cannot build one from packages.

An archive may come from anywhere (`docker export`, debootstrap, `drydock sandbox export`); it is unpacked as untrusted.
What is unpacked is named by the archive's content, so a sandbox that runs keeps its files when another archive takes
the same image name.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

from drydock.atomic import replace_file
from drydock.errors import UserError
from drydock.file_lock import try_lock
from drydock.sandbox.archive import is_archive, unpack
from drydock.sandbox.base_images import image_path
from drydock.sandbox.confine import PYTHON
from drydock.sandbox.ids import id_range
from drydock.sandbox.machine import SHELL
from drydock.sandbox.rootfs import furnish, require_rootfs, rootfs_path
from drydock.sandbox.transfer import kind_of

type _Kind = Literal["w:", "w:gz", "w:bz2", "w:xz"]

_LARGEST = 64 << 30
_WRITING: dict[str, _Kind] = {
    ".gz": "w:gz",
    ".tgz": "w:gz",
    ".bz2": "w:bz2",
    ".xz": "w:xz",
}


def import_rootfs(archive: Path, cache_dir: Path, image: str | None = None) -> Path:
    """Unpack a root file system as the sandbox's own, or as the image of a name; returns its directory.

    Raises UserError for a file that is no archive, or that lacks what a sandbox needs.
    """
    if not is_archive(archive):
        raise UserError(f"{archive} is no tar archive, plain or compressed by gzip, bzip2 or xz")
    link = image_path(cache_dir / "images", image) if image else rootfs_path(cache_dir)
    if link.is_dir() and not link.is_symlink():
        raise UserError(f"{link} has been built already; delete it to take {archive} instead")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    store = cache_dir / "imported"
    store.mkdir(parents=True, exist_ok=True)
    target = store / f"{digest}-{id_range().base}"
    lock = os.open(store / f".{target.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _unpack(archive, target)
    finally:
        os.close(lock)
    with replace_file(link, durable=False) as temporary:
        temporary.symlink_to(target.resolve())
    return target


def export_rootfs(archive: Path, cache_dir: Path) -> None:
    """Write the sandbox's root file system to a tar archive, compressed as its name says (.gz, .bz2, .xz)."""
    system = require_rootfs(cache_dir)
    base = id_range().base
    kind: _Kind = _WRITING.get(archive.suffix, "w:")

    def as_inside(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid, member.gid = member.uid - base, member.gid - base
        member.uname = member.gname = ""
        return member

    with replace_file(archive.absolute()) as temporary, tarfile.open(temporary, kind) as members:
        members.add(system.resolve(), arcname=".", filter=as_inside)


def remove_unfinished_imports(cache_dir: Path) -> list[str]:
    """Delete what killed imports left; a line about each."""
    store = cache_dir / "imported"
    removed = []
    for staging in store.glob(".*.new-*"):
        lock = try_lock(store / f"{staging.name.partition('.new-')[0]}.lock", fcntl.LOCK_EX)
        if lock is not None:
            shutil.rmtree(staging, ignore_errors=True)
            os.close(lock)
            removed.append(f"unfinished root file system {staging} deleted")
    return removed


def _unpack(archive: Path, target: Path) -> None:
    ids = id_range()
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    try:
        os.chown(staging, ids.base, ids.base)
        root = os.open(staging, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            unpack(archive, root, "/", id_base=ids.base, id_count=ids.count, limit_bytes=_LARGEST)
            missing = [path for path in (SHELL, "/bin/sh", PYTHON) if kind_of(root, path) != stat.S_IFREG]
            if missing:
                raise UserError(f"{archive} holds no {' and no '.join(missing)}, which a sandbox needs")
            furnish(root)
        finally:
            os.close(root)
        staging.chmod(0o755)
        staging.rename(target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
