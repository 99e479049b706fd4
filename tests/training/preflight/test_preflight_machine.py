"""Pseudo-terminals, disk, other drivers, and what killed drivers left: each seen on this machine as it is."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from drydock.errors import ConfigError
from drydock.finding import Level
from drydock.training.preflight.disk import check_disk
from drydock.training.preflight.ptys import check_ptys
from drydock.training.preflight.run_state import check_drivers, check_run_folder, check_temporary_files
from drydock.training.run_folder import RunFolder

HOLD_LOCK = """
import sys
from pathlib import Path
from drydock.training.run_lock import run_lock
with run_lock(Path(sys.argv[1]), Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
OWN_DIRECTORY = """
import sys
from drydock.own_directory import own_directory
print(own_directory("test"), flush=True)
sys.stdin.read()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that has printed its first line and goes on until its input is closed or it is killed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(("needed", "level"), [(1, Level.PASS), (10**9, Level.FAIL)])
def test_pseudo_terminals(needed: int, level: Level) -> None:
    (finding,) = check_ptys(needed)
    if "not shown" in finding.detail:
        pytest.skip("this kernel does not show how many are left")
    assert finding.level is level
    left = int(finding.detail.split()[0])
    assert check_ptys(left // 2)[0].level is Level.WARN


def test_disk_passes_warns_and_fails_by_what_is_free(tmp_path: Path) -> None:
    places = {"trainer.ckpt_path": tmp_path / "not" / "there"}
    levels = [
        check_disk(places, least_bytes=least, scarce_bytes=scarce)[0].level
        for least, scarce in ((0, 0), (0, 1 << 60), (1 << 60, 1 << 60))
    ]
    assert levels == [Level.PASS, Level.WARN, Level.FAIL]
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check_disk({"TMPDIR": tmp_path / "file", "trainer.ckpt_path": Path("/proc/nowhere")})
    assert [finding.level for finding in found] == [Level.FAIL, Level.FAIL]
    assert "is a file" in found[0].detail
    assert "trainer.ckpt_path: nothing can be written to /proc" in found[1].detail


def test_other_drivers_are_named_and_dead_ones_are_not(tmp_path: Path) -> None:
    here, state = RunFolder(tmp_path / "run", "me"), tmp_path / "state"
    assert check_drivers(state, here)[0].level is Level.PASS
    other = start(HOLD_LOCK, state, tmp_path / "other")
    same = start(HOLD_LOCK, state, here.root)
    (finding,) = check_drivers(state)
    assert finding.level is Level.WARN
    assert f"process {other.pid} in {tmp_path / 'other'}" in finding.detail
    (finding,) = check_drivers(state, here)
    assert finding.level is Level.FAIL
    assert f"process {same.pid}" in finding.detail
    kill(same)
    assert check_drivers(state, here)[0].level is Level.WARN
    kill(other)
    assert check_drivers(state, here)[0].level is Level.PASS
    assert len(list((state / "runs").iterdir())) == 2


def test_what_a_killed_driver_left_in_the_runs_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", "me")
    assert [finding.level for finding in check_run_folder(folder)] == [Level.PASS]
    folder.turns.mkdir(parents=True)
    folder.config.write_text("")
    assert "holds an earlier run" in check_run_folder(folder)[0].detail
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder.launcher_pid.write_text(f"{gone.pid}\n")
    folder.job_id.write_text("job-1\n")
    folder.turn_log("t_0").write_text("{}\n")
    launcher, sessions = check_run_folder(folder)
    assert (launcher.level, sessions.level) == (Level.WARN, Level.WARN)
    assert "drydock jobs cancel job-1" in launcher.remedy
    assert sessions.detail.startswith("1 sessions")


def test_a_run_folder_with_a_living_driver_or_something_else_fails(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", "me")
    folder.root.mkdir()
    folder.config.write_text("")
    living = start("print(1, flush=True); input()")
    folder.launcher_pid.write_text(f"{living.pid}\n")
    with pytest.raises(ConfigError, match=f"process {living.pid}"):
        check_run_folder(folder)
    kill(living)
    folder.config.unlink()
    with pytest.raises(ConfigError, match="holds no earlier run"):
        check_run_folder(folder)


def test_temporary_directories_of_killed_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    living, killed = start(OWN_DIRECTORY), start(OWN_DIRECTORY)
    assert check_temporary_files()[0].level is Level.PASS
    kill(killed)
    (finding,) = check_temporary_files()
    assert (finding.level, finding.detail) == (Level.WARN, "1 temporary directories of killed drivers")
    assert "drydock reap" in finding.remedy
    assert len(list(tmp_path.iterdir())) == 2
    living.communicate()
