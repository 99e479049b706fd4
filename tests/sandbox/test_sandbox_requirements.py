"""Requirements, package sources and the commands."""

import shutil
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
