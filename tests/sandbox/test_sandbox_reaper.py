"""A driver that is killed leaves nothing that runs, and the reaper removes the rest; living drivers keep theirs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drydock.cli.sandbox import app
from drydock.sandbox.reaper import reap
from drydock.sandbox.records import read_records, start_time

pytestmark = pytest.mark.sandbox

DRIVER = """
import asyncio, logging, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from builders.sandbox_environment import build_environment
from drydock.sandbox.{module} import {kind}

async def main():
    environments = []
    for name in ("one", "two"):
        environment = build_environment({kind}, Path({directory!r}) / name, "FROM debian\\n", **{options})
        environment.settings.state_dir = Path({directory!r}) / "sandboxes"
        await environment.start(force_build=False)
        await environment.exec("echo x > /tmp/file; setsid sleep 292 > /dev/null 2>&1 &")
        environments.append(environment)
    print("started", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def killed_driver(tmp_path: Path, kind: str) -> None:
    module, name, options = {
        "memory": ("local", "LocalEnvironment", {"storage": "memory"}),
        "disk": ("local", "LocalEnvironment", {"storage": "disk"}),
        "host": ("host", "HostEnvironment", {}),
    }[kind]
    tests = str(Path(__file__).parents[1])
    script = DRIVER.format(tests=tests, directory=str(tmp_path), module=module, kind=name, options=options)
    driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "started\n"
    assert reap(tmp_path / "sandboxes") == []
    assert len(read_records(tmp_path / "sandboxes")) == 2
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()


@pytest.mark.parametrize("kind", ["memory", "disk", "host"])
def test_nothing_is_left_of_a_killed_driver(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    killed_driver(tmp_path, kind)
    records = read_records(tmp_path / "sandboxes")
    removed = reap(tmp_path / "sandboxes")
    assert len(removed) >= 2
    deadline = time.monotonic() + 5
    while any(start_time(record.init[0]) == record.init[1] for record in records):
        assert time.monotonic() < deadline, "a sandbox outlived its driver"
        time.sleep(0.02)
    assert list((tmp_path / "sandboxes").iterdir()) == []
    assert "sandbox on" not in Path("/proc/self/mountinfo").read_text()
    assert reap(tmp_path / "sandboxes") == []


def test_the_reap_command_says_what_it_removed(tmp_path):
    killed_driver(tmp_path, "memory")
    result = CliRunner().invoke(app, ["reap", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.count("sandbox ") >= 2
    assert "nothing to remove" in CliRunner().invoke(app, ["reap", "--state-dir", str(tmp_path)]).output


async def test_a_living_owners_sandbox_is_left_alone(start, tmp_path):
    environment = await start()
    assert reap(tmp_path / "task" / "state") == []
    assert (await environment.exec("echo alive")).stdout == "alive\n"


def test_a_pid_that_was_given_to_another_process_is_not_killed(tmp_path):
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "old.json").write_text(
            f'{{"owner": [{os.getpid()}, 1], "init": [{bystander.pid}, 1], "directory": "{tmp_path.parent}"}}'
        )
        reap(tmp_path)
        assert bystander.poll() is None
        assert tmp_path.exists()
        assert not (tmp_path / "old.json").exists()
    finally:
        bystander.kill()
        bystander.wait()


async def test_death_of_process_one_is_an_error_not_a_hang(start):
    environment = await start()
    os.kill(environment._running().init_pid, signal.SIGKILL)
    with pytest.raises(Exception, match="sandbox"):
        await environment.exec("sleep 5", timeout_sec=10)
    await environment.kill_processes()
    assert (await environment.exec("echo again")).stdout == "again\n"
