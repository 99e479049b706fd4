"""A temporary directory outlives neither the end nor, once reaped, the violent death of its process."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from drydock.own_directory import own_directory, remove_abandoned

SCRIPT = """
import os
from drydock.own_directory import own_directory
directory = own_directory("test")
(directory / "file").write_text("x")
print(directory, flush=True)
if {killed}:
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("killed", [False, True])
def test_it_goes_with_its_process(place, killed):
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(killed=killed)], capture_output=True, text=True)
    directory = Path(done.stdout.strip())
    assert directory.parent == place
    assert directory.name.startswith("drydock-test-")
    assert directory.exists() is killed
    assert remove_abandoned() == ([f"temporary directory {directory} deleted"] if killed else [])
    assert list(place.iterdir()) == []


def test_those_of_living_processes_and_of_others_stay(place):
    mine = own_directory("mine")
    (place / "drydock-else").mkdir()
    (place / "drydock-link").symlink_to(mine)
    assert remove_abandoned() == []
    assert mine.is_dir()
    assert (place / "drydock-else").is_dir()
