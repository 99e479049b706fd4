"""Files in and out; planted links, pipes and giants reach nothing of the host."""

import os
import stat
from pathlib import Path

import pytest

from drydock.errors import SandboxError
from drydock.sandbox.ids import id_range

pytestmark = pytest.mark.sandbox


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the host that no sandbox may read or change."""
    path = tmp_path / "secret"
    path.write_text("host secret\n")
    return path


async def test_file_round_trip_keeps_content_and_permissions(local, tmp_path):
    source = tmp_path / "source.sh"
    source.write_bytes(b"#!/bin/sh\necho run \xff\n")
    source.chmod(0o750)
    await local.upload_file(source, "/deep/new/place/tool")
    listed = await local.exec("stat -c '%U %G %a' /deep/new/place/tool; /deep/new/place/tool | head -c 3")
    assert listed.stdout == "root root 750\nrun"
    await local.download_file("/deep/new/place/tool", tmp_path / "out" / "back.sh")
    assert (tmp_path / "out" / "back.sh").read_bytes() == source.read_bytes()


async def test_file_to_a_directory_goes_into_it(local, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    await local.upload_file(tmp_path / "a.txt", "/tmp")
    assert (await local.exec("cat /tmp/a.txt")).stdout == "a"
    await local.download_file("/tmp/a.txt", tmp_path)
    assert (tmp_path / "a.txt").read_text() == "a"


async def test_directory_round_trip_merges_into_the_target(local, tmp_path):
    source = tmp_path / "tree"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "file").write_text("new")
    (source / "link").symlink_to("sub/file")
    await local.exec("mkdir -p /target/sub; echo old > /target/sub/file; echo stays > /target/other")
    await local.upload_dir(source, "/target")
    assert (await local.exec("cat /target/sub/file /target/link /target/other")).stdout == "newnewstays\n"
    await local.download_dir("/target", tmp_path / "back")
    assert (tmp_path / "back" / "sub" / "file").read_text() == "new"
    assert (tmp_path / "back" / "link").read_text() == "new"
    assert not (tmp_path / "back" / "link").is_symlink()
    assert (tmp_path / "back" / "sub" / "empty").is_dir()


async def test_uploads_belong_to_the_sandboxes_root_on_the_host(local, tmp_path):
    (tmp_path / "file").write_text("x")
    await local.upload_file(tmp_path / "file", "/tmp/file")
    assert os.stat("tmp/file", dir_fd=local._running().root).st_uid == id_range().base


async def test_missing_source_says_which(local, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await local.download_file("/nowhere", tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await local.download_dir("/nowhere", tmp_path / "x")


async def test_kind_of_paths(local):
    await local.exec("ln -s /etc /to-dir; ln -s /etc/passwd /to-file; ln -s / /loop")
    assert await local.is_dir("/to-dir")
    assert await local.is_file("/to-file")
    assert await local.is_dir("/loop/loop/etc")
    assert not await local.is_dir("/etc/passwd")
    assert not await local.is_file("/none")


async def test_upload_through_a_planted_directory_link_stays_inside(local, tmp_path, secret):
    await local.exec(f"ln -s {tmp_path} /tests; ln -s ../../../../../../.. /up; ln -s /proc/1/root /magic")
    (tmp_path / "payload").write_text("payload")
    await local.upload_file(tmp_path / "payload", "/up/etc/planted")
    assert not Path("/etc/planted").exists()
    assert (await local.exec("cat /etc/planted")).stdout == "payload"
    source = tmp_path / "tree"
    source.mkdir()
    (source / "secret").write_text("overwritten")
    with pytest.raises(OSError, match=r"tests|exists"):
        await local.upload_dir(source, "/tests")
    assert secret.read_text() == "host secret\n"


async def test_upload_over_a_planted_file_link_replaces_the_link(local, tmp_path, secret):
    (tmp_path / "payload").write_text("payload")
    await local.exec(f"mkdir /tests; ln -s {secret} /tests/test.sh; ln -s /etc/passwd /tests/more")
    await local.upload_file(tmp_path / "payload", "/tests/test.sh")
    assert secret.read_text() == "host secret\n"
    assert (await local.exec("test ! -L /tests/test.sh && cat /tests/test.sh")).stdout == "payload"


async def test_upload_copies_links_of_the_host_as_links(local, tmp_path, secret):
    source = tmp_path / "tree"
    source.mkdir()
    (source / "leak").symlink_to(secret)
    (source / "leaks").symlink_to(tmp_path)
    await local.upload_dir(source, "/data")
    assert "host secret" not in (await local.exec("cat /data/leak /data/leaks/secret")).stdout


async def test_download_never_follows_links_out_of_the_root(local, tmp_path, secret):
    await local.exec(
        f"mkdir /logs/agent/d; cd /logs/agent; ln -s {secret} absolute; ln -s ../../../../../../..{secret} relative;"
        f"ln -s {tmp_path} directory; ln -s /proc/self/root{secret} magic; ln -s loop loop; ln -s /etc/hostname d/own"
    )
    await local.download_dir("/logs/agent", tmp_path / "logs")
    assert sorted(path.name for path in (tmp_path / "logs").rglob("*")) == ["d", "own"]
    assert (tmp_path / "logs" / "d" / "own").read_text() == "sandbox\n"
    with pytest.raises(OSError, match="absolute"):
        await local.download_file("/logs/agent/absolute", tmp_path / "leak")


async def test_downloaded_trees_hold_no_link_that_could_be_followed_later(local, tmp_path):
    await local.exec("cd /logs/verifier; ln -s . d; ln -s d/d/d/../../../../../etc/passwd reward.txt; ln -s /etc e")
    await local.download_dir("/logs/verifier", tmp_path / "logs")
    assert not any(path.is_symlink() for path in (tmp_path / "logs").rglob("*"))
    await local.download_dir("/logs/verifier", tmp_path / "logs")


async def test_pipes_sockets_and_devices_are_left_out_without_waiting(local, tmp_path):
    await local.exec(
        "cd /logs/agent; mkfifo pipe; echo x > file; ln -s pipe to-pipe; ln -s /dev/zero zero;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
    )
    await local.download_dir("/logs/agent", tmp_path / "logs")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["file"]
    with pytest.raises(SandboxError, match="no regular file"):
        await local.download_file("/logs/agent/pipe", tmp_path / "x")


async def test_download_is_bounded_even_for_sparse_giants(start, tmp_path):
    environment = await start(max_transfer_mb=1)
    await environment.exec("truncate -s 1G /logs/agent/huge")
    with pytest.raises(SandboxError, match="max_transfer_mb"):
        await environment.download_dir("/logs/agent", tmp_path / "logs")
    assert sum(path.stat().st_size for path in (tmp_path / "logs").rglob("*")) < 3 << 20


async def test_set_user_id_bits_do_not_arrive_on_the_host(local, tmp_path):
    await local.exec("cp /bin/true /logs/agent/tool; chmod 6777 /logs/agent/tool")
    await local.download_dir("/logs/agent", tmp_path / "logs")
    assert stat.S_IMODE((tmp_path / "logs" / "tool").stat().st_mode) == 0o777


async def test_swapping_links_while_files_are_uploaded_reaches_nothing(local, tmp_path, secret):
    source = tmp_path / "tree"
    source.mkdir()
    (source / "secret").write_text("overwritten")
    racer = await local.exec(
        f"mkdir -p /race/a; (while :; do mv -T /race/a /race/b; ln -s {tmp_path} /race/a; rm /race/a;"
        " mv /race/b /race/a; done) >/dev/null 2>&1 &"
    )
    assert racer.return_code == 0
    for _ in range(300):
        try:
            await local.upload_dir(source, "/race/a")
        except OSError:
            continue
    assert secret.read_text() == "host secret\n"
