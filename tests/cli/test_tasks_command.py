"""`drydock tasks check` as a user calls it: what is printed where, and the exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from builders.tasks import write_task

from drydock.cli.main import main

ON_HOST = "sandbox.environment=host"


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """`check(*arguments)`: (exit code, stdout, stderr)."""
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["drydock", "tasks", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def test_a_table_with_what_is_wrong_below_it(tmp_path, check):
    write_task(tmp_path / "set" / "good")
    write_task(tmp_path / "set" / "unsolved", solution="true\n")
    (write_task(tmp_path / "set" / "broken") / "task.toml").write_text("x =\n")
    code, out, err = check(tmp_path / "set", ON_HOST, "--runs", "2")
    assert code == 1
    rows = {
        line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith((" good", " unso", " bro"))
    }
    assert [rows[name][0] for name in ("good", "unsolved", "broken")] == ["yes", "no", "no"]
    assert f"broken (task): {tmp_path}/set/broken/task.toml:1: Invalid value" in out
    assert "unsolved (task): the solution earns 0, not 1" in out
    assert out.count("  remedy: ") == 2
    assert out.rstrip().endswith("1 of 3 tasks are fit")
    assert "3/3" in err


def test_json_for_programs_in_the_sandbox_of_the_environment(tmp_path, check, monkeypatch):
    good = write_task(tmp_path / "good")
    code, out, _ = check(good, ON_HOST, "--runs", "1", "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (0, True)
    (task,) = found["tasks"]
    assert (task["ok"], task["task"], task["path"]) == (True, "good", str(good))
    assert (task["solution"], task["nothing"], task["faults"]) == ([1.0], [0.0], [])
    bad = write_task(tmp_path / "bad", test="true\n")
    monkeypatch.setenv("HARBOR_ENV", "host")
    code, out, _ = check(good, bad, "--runs", "1", "--json", "--concurrency", "2")
    assert (code, json.loads(out)["ok"]) == (1, False)
    (fault,) = json.loads(out)["tasks"][1]["faults"]
    assert fault["blame"] == "task"
    assert fault["remedy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is no directory"),
        ([ON_HOST], "no task directory is given"),
        (["good", "sandbox.enviroment=host"], "did you mean sandbox.environment"),
        (["good", "trainer.seed=1"], "trainer"),
        (["good", "sandbox.environment=none-such"], "unknown sandbox 'none-such'"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, check, monkeypatch, arguments, message):
    write_task(tmp_path / "good")
    monkeypatch.chdir(tmp_path)
    code, out, err = check(*arguments)
    assert (code, out) == (2, "")
    assert "error (user)" in err
    assert message in err


def test_a_signal_stops_the_check_and_its_sandboxes(tmp_path):
    task = write_task(tmp_path / "long", solution="sleep 287.31\n")
    environment = {**os.environ, "HARBOR_ALLOW_HOST_EXEC": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "drydock.cli.main", "tasks", "check", str(task), ON_HOST, "--json"]
    check = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: solutions_running() > 0)
    check.send_signal(signal.SIGINT)
    out, err = check.communicate(timeout=30)
    assert (check.returncode, out) == (130, "")
    assert "SIGINT: stopping" in err
    assert solutions_running() == 0
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file() and path.suffix == ".json"] == []


def solutions_running() -> int:
    return sum(process.info["cmdline"] == ["sleep", "287.31"] for process in psutil.process_iter(["cmdline"]))


def wait_until(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.1)
