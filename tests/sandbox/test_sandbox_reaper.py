"""A driver that is killed leaves nothing that runs, and the reaper removes the rest; living drivers keep theirs."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from builders import sandbox_driver
from typer.testing import CliRunner

from drydock.cli.sandbox import app
from drydock.sandbox.control_groups import ControlGroup, GroupLimits, group_parents
from drydock.sandbox.layer_store import layer_store
from drydock.sandbox.leftovers import check_leftovers
from drydock.sandbox.reaper import reap
from drydock.sandbox.records import Claim, read_records, start_time
from drydock.sandbox.rootfs import rootfs_path

pytestmark = pytest.mark.sandbox


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without what other processes of this machine may have left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


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
    while any(record.init and start_time(record.init[0]) == record.init[1] for record in records):
        assert time.monotonic() < deadline, "a sandbox outlived its driver"
        time.sleep(0.02)
    assert list((tmp_path / "sandboxes").iterdir()) == []
    mounts = Path("/proc/self/mountinfo").read_text()
    assert not [record.name for record in records if f"drydock-{record.name}" in mounts]
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


def test_a_process_that_was_half_started_is_found_by_its_label(tmp_path):
    """As bubblewrap's child is when its driver and its parent die before the record holds it."""
    commands = [["bash", "-c", "sleep 60; :", f"drydock-sandbox={name}"] for name in ("half-started", "half-started-2")]
    half, other = (subprocess.Popen(command) for command in commands)
    try:
        (tmp_path / "half-started.json").write_text(f'{{"owner": [{os.getpid()}, 1], "directory": null}}')
        removed = reap(tmp_path)
        assert half.wait(timeout=5) == -signal.SIGKILL
        assert f"sandbox half-started: process {half.pid}, half started, killed" in removed
        assert other.poll() is None
    finally:
        for process in (half, other):
            process.kill()
            process.wait()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """State and cache of a driver, with the machine's root file system."""
    (tmp_path / sandbox_driver.CACHE / "rootfs").mkdir(parents=True)
    rootfs_path(tmp_path / sandbox_driver.CACHE).symlink_to(rootfs_path())
    return tmp_path


def start_driver(place: Path, seed: int) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[1])
    driver = subprocess.Popen(
        [sys.executable, str(Path(sandbox_driver.__file__)), str(place), str(seed)],
        env={**os.environ, "PYTHONPATH": tests},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "begun\n"
    return driver


def left_of(place: Path, drivers: list[int]) -> list[str]:
    """Everything of the drivers' sandboxes that is still there: processes, control groups, mounts, files."""
    names = [f"drydock-{kind}{pid}-".encode() for pid in drivers for kind in ("sandbox=", "")]
    state, cache = place / sandbox_driver.STATE, place / sandbox_driver.CACHE
    found = [str(path) for path in state.iterdir()] if state.is_dir() else []
    found += [str(path) for path in (cache / "layers").glob(".*") if path.is_dir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                mounts = (entry / "mountinfo").read_bytes()
            except OSError:
                continue
            if any(name in command + mounts for name in names):
                found.append(f"process {entry.name}: {command[:200]!r}")
    for parent in group_parents():
        groups = [path.name.encode() for path in parent.directory.glob("drydock-*")]
        found += [str(group) for group in groups if any(name in group for name in names)]
    return found


def wait_until_nothing_is_left(place: Path, drivers: list[int]) -> None:
    give_up = time.monotonic() + 10
    while left := left_of(place, drivers):
        assert time.monotonic() < give_up, left
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_kills_at_random_points_leave_nothing(place):
    draw = random.Random(6)
    drivers = []
    for seed in range(20):
        driver = start_driver(place, seed)
        time.sleep(draw.uniform(0, 1.5))
        driver.kill()
        driver.wait()
        drivers.append(driver.pid)
        reap(place / sandbox_driver.STATE, place / sandbox_driver.CACHE)
        wait_until_nothing_is_left(place, drivers)
    assert len(list((place / sandbox_driver.CACHE / "layers").iterdir())) > 20


def test_one_driver_is_killed_and_reaped_while_another_goes_on(place):
    dead, alive = start_driver(place, 1), start_driver(place, 2)
    time.sleep(1)
    dead.kill()
    dead.wait()
    state = place / sandbox_driver.STATE
    removed = reap(state, place / sandbox_driver.CACHE)
    assert all(f"sandbox {alive.pid}-" not in line for line in removed)
    time.sleep(0.5)
    assert alive.poll() is None
    assert all(record.owner[0] == alive.pid for record in read_records(state))
    alive.kill()
    alive.wait()
    reap(state, place / sandbox_driver.CACHE)
    wait_until_nothing_is_left(place, [dead.pid, alive.pid])


def test_a_driver_killed_before_its_first_process_is_reaped_too(tmp_path):
    script = """
import os, sys
from pathlib import Path
from drydock.sandbox.control_groups import ControlGroup, GroupLimits, group_parents
from drydock.sandbox.records import Claim

state, name = Path(sys.argv[1]), f"{os.getpid()}-x"
claim = Claim(state, name, state / name)
(state / name / "upper").mkdir(parents=True)
group = ControlGroup(name, group_parents())
claim.update(groups=group.directories)
group.create(GroupLimits())
print(flush=True)
os.kill(os.getpid(), 9)
"""
    driver = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, check=False)
    assert driver.stdout == b"\n", driver.stderr
    groups = [Path(group) for record in read_records(tmp_path) for group in record.groups]
    assert check_leftovers(tmp_path)[0].level == "warn"
    assert [group.is_dir() for group in groups] == [True] * len(group_parents())
    assert len(reap(tmp_path)) == 1 + len(groups)
    assert list(tmp_path.iterdir()) == []
    assert [group.is_dir() for group in groups] == [False] * len(groups)
    assert check_leftovers(tmp_path)[0].level == "pass"


def test_a_record_is_locked_by_its_owner_and_survives_a_reaper(tmp_path):
    claim = Claim(tmp_path, "one")
    claim.update(init_pid=os.getpid(), groups=())
    assert reap(tmp_path) == []
    (record,) = read_records(tmp_path)
    assert record.init == record.owner
    claim.release()
    assert list(tmp_path.iterdir()) == []


def test_the_reaper_removes_no_group_but_the_sandboxs(tmp_path):
    bystander = ControlGroup("bystander", group_parents())
    bystander.create(GroupLimits())
    try:
        groups = ", ".join(f'"{path}"' for path in bystander.directories)
        (tmp_path / "a.json").write_text(f'{{"owner": [1, 1], "directory": "/etc", "groups": [{groups}, "/etc"]}}')
        reap(tmp_path)
        assert all(path.is_dir() for path in bystander.directories)
        assert Path("/etc").is_dir()
    finally:
        bystander.remove()


async def test_an_unfinished_layer_is_removed_unless_somebody_builds_it(tmp_path):
    store = layer_store(tmp_path / "layers")
    (store.directory / ".abandoned.123").mkdir()

    async def build(layer: Path) -> None:
        (store.directory / f".{layer.name}.456").mkdir()
        assert reap(tmp_path / "state", tmp_path) == ["unfinished layer abandoned deleted"]
        (store.directory / f".{layer.name}.456").rename(layer)

    assert (await store.acquire("current", build)).is_dir()


def test_every_process_mount_group_and_directory_bears_the_sandboxs_name(place):
    driver = start_driver(place, 3)
    try:
        give_up = time.monotonic() + 10
        while True:
            assert time.monotonic() < give_up
            records = [record for record in read_records(place / sandbox_driver.STATE) if record.init]
            for record in records:
                assert record.init is not None
                try:
                    command = Path(f"/proc/{record.init[0]}/cmdline").read_text()
                    mounts = Path(f"/proc/{record.init[0]}/mountinfo").read_text()
                except OSError:
                    continue
                if "pid1" in command or "/dev/fd" in command:
                    assert f"drydock-sandbox={record.name}" in command
                    assert f"drydock-{record.name}" in mounts
                    assert all(path.endswith(f"drydock-{record.name}") for path in record.groups)
                    assert record.directory in (None, str(place / sandbox_driver.STATE / record.name))
                    return
            time.sleep(0.01)
    finally:
        driver.kill()
        driver.wait()
        reap(place / sandbox_driver.STATE, place / sandbox_driver.CACHE)
