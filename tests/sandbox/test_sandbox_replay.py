"""Dockerfiles with stages, here-documents, archives and caches, replayed for real."""

import io
import tarfile
from pathlib import Path

import pytest

from drydock.errors import TaskError
from drydock.sandbox.images import check_definition
from drydock.sandbox.locations import default_cache_dir
from drydock.sandbox.rootfs import rootfs_path

pytestmark = pytest.mark.sandbox


@pytest.fixture
def context(tmp_path: Path) -> Path:
    directory = tmp_path / "task" / "environment"
    directory.mkdir(parents=True)
    return directory


def archive_of(entries: list[tuple[str, str | None]]) -> bytes:
    """A tar archive of (name, content), and (name, None) for a link that leads to /tmp."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/tmp"
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


async def test_a_stage_is_built_copied_from_and_not_in_the_result(start, context):
    (context / "main.txt").write_text("main")
    environment = await start(
        """\
FROM debian AS builder
RUN useradd -m maker && mkdir -p /out/sub && echo built > /out/sub/a && ln -s sub/a /out/link && echo s > /out/b.log
RUN chmod 755 /out/sub/a && chown maker /out/sub/a && ln -s /etc/passwd /out/absolute && touch /only-here
FROM scratch AS files
COPY main.txt /kept/
COPY --from=builder /out /kept
FROM debian
COPY --from=files /kept /opt/kept
COPY --from=builder --chown=nobody --chmod=600 /out/*.log /out/sub/a /logs/
COPY --from=debian:12 /etc/debian_version /version
COPY --from=0 /out/absolute /passwd
"""
    )
    shown = await environment.exec(
        "cd /opt/kept && cat main.txt sub/a link && readlink link absolute && stat -c '%U %a' sub/a;"
        "stat -c '%n %U %a' /logs/*; cat /version; test -e /only-here || echo absent; grep -c maker /passwd; id maker"
    )
    assert shown.stdout.splitlines() == [
        *("mainbuilt", "built", "sub/a", "/etc/passwd", "root 755"),
        *("/logs/a nobody 600", "/logs/agent root 777", "/logs/artifacts root 777"),
        *("/logs/b.log nobody 600", "/logs/verifier root 777"),
        *((rootfs_path() / "etc" / "debian_version").read_text().strip(), "absent", "1"),
    ]


async def test_a_result_in_the_cache_needs_no_other_stage(start, context, tmp_path):
    cache = tmp_path / "cache"
    (cache / "rootfs").mkdir(parents=True)
    rootfs_path(cache).symlink_to(rootfs_path())
    dockerfile = "FROM debian AS b\nRUN echo 1 > /x\nFROM debian\nCOPY --from=b /x /y\n"
    one = await start(dockerfile, cache_dir=cache)
    assert (await one.exec("cat /y")).stdout == "1\n"
    layers = [path for path in (cache / "layers").iterdir() if not path.name.startswith(".")]
    stage = next(path for path in layers if (path / "x").exists())
    await one.stop(delete=True)
    stage.rename(tmp_path / "gone")
    two = await start(dockerfile, cache_dir=cache)
    assert (await two.exec("cat /y")).stdout == "1\n"
    assert not stage.exists()


async def test_here_documents_run_and_become_files(start):
    environment = await start(
        """\
FROM debian
ENV WHO=world
RUN <<EOF
set -e
greeting=hello
echo $greeting $WHO > /one
EOF
RUN <<EOF
#!/usr/bin/python3
open("/two", "w").write("from python")
EOF
RUN cat <<'A' > /three && cat <<B > /four
$WHO
A
$WHO
B
COPY --chmod=+x <<EOF /bin/hello
#!/bin/sh
echo hi $WHO
EOF
"""
    )
    shown = await environment.exec("cat /one /two /three /four; hello")
    assert shown.stdout == "hello world\nfrom python$WHO\nworld\nhi world\n", shown.stderr


async def test_archives_are_unpacked_by_add_and_cannot_leave_the_root(start, context, tmp_path):
    victim = Path("/tmp/drydock-escaped")
    data = archive_of(
        [
            ("dir/file", "inner"),
            ("../../../../../../../../tmp/drydock-escaped", "x"),
            ("/tmp/drydock-escaped", "x"),
            ("link", None),
            ("link/drydock-escaped", "x"),
        ]
    )
    (context / "a.tar.gz").write_bytes(data)
    (context / "plain").write_text("p")
    environment = await start("FROM debian\nADD a.tar.gz plain /data/\nCOPY a.tar.gz /kept\n")
    shown = await environment.exec("cat /data/dir/file /data/plain; head -c 2 /kept | od -An -tx1; ls /tmp")
    assert shown.stdout == "innerp 1f 8b\ndrydock-escaped\n"
    assert not victim.exists()


async def test_what_a_cache_mount_holds_is_not_in_the_layer(start):
    environment = await start(
        'FROM debian\nRUN --mount=type=cache,target=/root/.cache test -z "$(ls /root/.cache)" && '
        "echo big > /root/.cache/file && echo done > /done\n"
    )
    assert (await environment.exec("cat /done; ls -A /root/.cache")).stdout == "done\n"


async def test_shell_and_bare_arguments(start):
    environment = await start(
        'FROM debian\nARG A=1\nARG B\nSHELL ["/bin/bash", "-o", "pipefail", "-c"]\n'
        "RUN [[ $A == 1 && -z ${B+set} ]] && echo $BASH_VERSION > /shell\nENV A=2\nRUN echo $A > /a\n"
    )
    shown = await environment.exec("cat /shell /a; echo $A")
    assert shown.stdout.splitlines()[1:] == ["2", "2"]
    assert shown.stdout[0] == "5"


@pytest.mark.parametrize(
    ("dockerfile", "refusal"),
    [
        ("FROM debian AS b\nFROM debian\nCOPY --from=nothing /a /b", r"Dockerfile:3: .*for the image nothing"),
        ("FROM golang:1 AS b\nFROM debian\nCOPY --from=b /a /b", r"Dockerfile:1: .*for the image golang:1; known are"),
        ("FROM scratch\nCOPY x /", r"Dockerfile:1: a sandbox FROM scratch has no shell"),
        ("FROM scratch AS s\nRUN true\nFROM debian\nCOPY --from=s / /", r"Dockerfile:2: RUN in a stage FROM scratch"),
        ("FROM debian\nCOPY missing /", r"Dockerfile:2: missing is not in the build context"),
    ],
)
def test_refused_before_anything_is_built(context, dockerfile, refusal):
    (context / "x").write_text("x")
    (context / "Dockerfile").write_text(dockerfile)
    found = check_definition(context, None, {}, default_cache_dir())
    assert found is not None
    with pytest.raises(TaskError, match=refusal):
        raise found


async def test_a_source_missing_in_a_stage_names_its_line(start):
    with pytest.raises(TaskError, match=r"Dockerfile:4: /nothing\* is not in the stage"):
        await start("FROM debian AS b\nFROM debian\nWORKDIR /w\nCOPY --from=b /nothing* /x/\n")
