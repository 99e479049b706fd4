"""Requirements, package sources and the commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drydock.cli.sandbox import app
from drydock.errors import SandboxUnavailable
from drydock.sandbox.requirements import check_local
from drydock.sandbox.rootfs import machine_sources, require_rootfs


def test_a_missing_root_file_system_names_the_commands(tmp_path):
    with pytest.raises(SandboxUnavailable, match=r"make setup.*drydock sandbox build"):
        require_rootfs(tmp_path)
    missing = {item.name: item for item in check_local(tmp_path) if not item.ok}
    assert "drydock sandbox build" in missing["root file system"].remedy


def test_a_missing_program_names_its_package(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    items = {item.name: item for item in check_local(tmp_path)}
    assert not items["bwrap"].ok
    assert items["bwrap"].remedy == "apt-get install bubblewrap"


def test_check_prints_a_table_and_fails_when_something_is_missing(tmp_path):
    result = CliRunner().invoke(app, ["check", "--cache-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "bwrap" in result.output


def test_only_the_releases_own_sources_are_taken_from_the_machine(tmp_path: Path):
    (tmp_path / "sources.list").write_text(
        "deb [signed-by=/k.gpg] http://mirror.internal/debian bookworm main contrib\n"
        "deb http://mirror.internal/debian-security bookworm-security main\n"
        "deb-src http://mirror.internal/debian bookworm main\n"
        "# deb http://other/debian bookworm main\n"
        "deb http://vendor.example/apt stable main\n"
    )
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    good = "Types: deb\nURIs: http://mirror.internal/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
    (parts / "debian.sources").write_text(
        good + "\nTypes: deb\nURIs: http://v.example\nSuites: nodistro\nComponents: main\n"
    )
    (parts / "off.sources").write_text(good + "Enabled: no\n")
    lines, stanzas = machine_sources(tmp_path)
    assert [line.split()[-3:] for line in lines] == [
        ["bookworm", "main", "contrib"],
        ["http://mirror.internal/debian-security", "bookworm-security", "main"],
    ]
    assert [stanza.strip() for stanza in stanzas] == [good.strip()]


ON_AN_OVERLAY = """
import asyncio, sys
from pathlib import Path
from builders.sandbox_environment import build_environment
from drydock.errors import SandboxUnavailable
from drydock.sandbox.local import LocalEnvironment

async def main():
    environment = build_environment(LocalEnvironment, Path(sys.argv[1]), "FROM debian\\n", storage="disk")
    try:
        await environment.start(force_build=False)
    except SandboxUnavailable as error:
        print(error)
    await environment.stop(delete=True)

asyncio.run(main())
"""


@pytest.mark.sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay for the test")
def test_a_disk_that_cannot_hold_what_sandboxes_write_is_named_with_the_remedy(tmp_path):
    lower, upper, work, place = (tmp_path / name for name in ("lower", "upper", "work", "place"))
    for directory in (lower, upper, work, place):
        directory.mkdir()
    mount = f"mount -t overlay none -o lowerdir={lower},upperdir={upper},workdir={work} {place}"
    script = f'{mount} && exec "$0" -c "$1" {place}'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, ON_AN_OVERLAY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"the file system of {place}/state/" in done.stdout, done.stderr
    assert "choose another sandbox.state_dir, or sandbox.kwargs.storage=memory" in done.stdout
