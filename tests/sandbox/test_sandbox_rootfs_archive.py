"""A root file system leaves a machine as an archive and works on another; other archives are refused."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drydock.cli.sandbox import app
from drydock.errors import TaskError, UserError
from drydock.sandbox.ids import id_range
from drydock.sandbox.rootfs import rootfs_path
from drydock.sandbox.rootfs_archive import import_rootfs

pytestmark = pytest.mark.sandbox


def test_an_archive_holds_the_ids_of_the_inside(rootfs_archive: Path) -> None:
    with tarfile.open(rootfs_archive) as members:
        owners = {member.name: (member.uid, member.gid) for member in members}
    assert owners["./bin/bash" if "./bin/bash" in owners else "./usr/bin/bash"] == (0, 0)
    assert max(uid for uid, _ in owners.values()) < 65_536


async def test_a_machine_without_packages_builds_from_the_archive(start, rootfs_archive, tmp_path):
    cache = tmp_path / "cache"
    done = CliRunner().invoke(app, ["build", "--tarball", str(rootfs_archive), "--cache-dir", str(cache)])
    assert done.exit_code == 0, done.output
    assert rootfs_path(cache).is_dir()
    assert (rootfs_path(cache) / "usr/bin/passwd").stat().st_mode == (rootfs_path() / "usr/bin/passwd").stat().st_mode
    environment = await start("FROM debian\nRUN useradd -m agent\nUSER agent\n", cache_dir=cache)
    assert (await environment.exec("id -un; python3 -c 'print(1)'")).stdout == "agent\n1\n"


async def test_an_archive_becomes_the_image_of_a_name(start, rootfs_archive, tmp_path):
    cache = tmp_path / "cache"
    import_rootfs(rootfs_archive, cache)
    import_rootfs(rootfs_archive, cache, "example.org/tools")
    assert len([path for path in (cache / "imported").iterdir() if path.is_dir()]) == 1
    environment = await start("FROM example.org/tools:latest\n", cache_dir=cache)
    assert (await environment.exec("echo works")).stdout == "works\n"


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ([], "holds no /bin/bash"),
        ([("bin/bash", tarfile.REGTYPE, ""), ("bin/sh", tarfile.SYMTYPE, "/bin/bash")], "no /usr/bin/python3"),
        ([("x", tarfile.REGTYPE, "")] * 2 + [("y", tarfile.LNKTYPE, "../../../../etc/shadow")], "cannot be unpacked"),
    ],
)
def test_what_is_no_system_is_refused_and_leaves_nothing(tmp_path, members, complaint):
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as archive:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            archive.addfile(member, io.BytesIO(b""))
    with pytest.raises(Exception, match=complaint):
        import_rootfs(file, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "imported").iterdir() if path.is_dir()] == []


def test_links_devices_and_names_of_an_archive_stay_inside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as archive:
        for name, kind, link in (
            ("../" * 12 + str(outside).lstrip("/") + "/planted", tarfile.REGTYPE, ""),
            ("away", tarfile.SYMTYPE, str(outside)),
            ("up", tarfile.SYMTYPE, "../../../../../../../../../" + str(outside)),
            ("away/planted", tarfile.REGTYPE, ""),
            ("up/planted", tarfile.REGTYPE, ""),
            ("disk", tarfile.BLKTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("etc", tarfile.SYMTYPE, str(outside)),
            ("bin/bash", tarfile.REGTYPE, ""),
            ("bin/sh", tarfile.SYMTYPE, "bash"),
            ("usr/bin/python3", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o755
            archive.addfile(member, io.BytesIO(b""))
    target = import_rootfs(file, tmp_path / "cache")
    assert list(outside.iterdir()) == []
    assert not os.path.lexists(target / "disk")
    assert not os.path.lexists(target / "pipe")
    assert (target / "away").is_symlink()
    assert (target / "bin/bash").stat().st_uid == id_range().base


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"uid": -id_range().base}, "belongs to id -"),
        ({"gid": -1}, "belongs to id -1"),
        ({"uid": 1 << 40}, "belongs to id 1099511627776"),
        ({"pax_headers": {"mtime": "nan"}}, "cannot be unpacked"),
        ({"pax_headers": {"path": "a\0b"}}, "cannot be unpacked"),
        ({"name": "a/" * 1500 + "b"}, "cannot be unpacked"),
    ],
)
def test_fields_that_no_system_has_are_refused(tmp_path, fields, complaint):
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as archive:
        member = tarfile.TarInfo("x")
        member.mode = 0o4755
        for name, value in fields.items():
            setattr(member, name, value)
        archive.addfile(member, io.BytesIO(b""))
    with pytest.raises(TaskError, match=complaint):
        import_rootfs(file, tmp_path / "cache")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no archive")
    with pytest.raises(UserError, match="is no tar archive"):
        import_rootfs(tmp_path / "x", tmp_path / "cache")
    assert CliRunner().invoke(app, ["build", "--image", "x"]).exit_code == 2
