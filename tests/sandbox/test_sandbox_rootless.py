"""The local sandbox for an ordinary user, in a user namespace of the driver's own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.ordinary_user import FIRST_ID, UID, make_home, run_as_user

pytestmark = pytest.mark.sandbox

DRYDOCK = str(Path(sys.executable).with_name("drydock"))

PROGRAM = """
from drydock.sandbox.rootless import enter_user_namespace
enter_user_namespace()
import asyncio, sys
from pathlib import Path
from builders.sandbox_environment import build_environment
from drydock.sandbox.local import LocalEnvironment

async def main():
    place = Path.home() / "work"
    context = place / "environment"
    context.mkdir(parents=True)
    (context / "file").write_text("copied")
    environment = build_environment(
        LocalEnvironment,
        place,
        "FROM debian\\nRUN useradd -m agent && mkdir /d && touch /d/old\\nRUN rm -r /d && mkdir /d && touch /d/new\\n"
        "COPY --chown=agent --chmod=600 file /home/agent/\\nUSER agent\\nWORKDIR /home/agent\\n",
        storage=sys.argv[1],
    )
    await environment.start(force_build=False)
    await environment.exec("mkdir -p /sealed/in", user="root")
    await environment.make_read_only("/sealed")
    for command, user in (
        ("cat file; stat -c %U file; ls /d; id -u", None),
        ("cd /var/lib && rm -r dpkg && mkdir dpkg && ls -A dpkg; id -u; cat /proc/sys/kernel/pid_max", "root"),
        ("touch /sealed/in/new || rm -r /sealed || umount /sealed || echo sealed", "root"),
        ("echo 1 > /proc/sys/vm/swappiness || mount -t tmpfs none /mnt || unshare -Ur true || echo refused", "root"),
    ):
        done = await environment.exec(command, user=user, timeout_sec=20)
        print(done.stdout, end="")
    (place / "up").write_text("sent")
    await environment.upload_file(place / "up", "/tmp/up")
    await environment.download_file("/tmp/up", place / "down")
    print((place / "down").read_text())
    await environment.stop(delete=True)

asyncio.run(main())
"""


@pytest.fixture
def home() -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("newuidmap") is None:
        pytest.skip("needs root, to become an ordinary user, and newuidmap: apt-get install uidmap")
    directory = Path(tempfile.mkdtemp(prefix="drydock-user-"))
    yield directory / "home"
    shutil.rmtree(directory)


@pytest.fixture
def user_home(home: Path) -> Path:
    """The home of a user who has ids."""
    home.parent.chmod(0o755)
    make_home(home)
    if run_as_user(home, sys.executable, "-c", "import drydock").returncode != 0:
        pytest.skip("an ordinary user may not read this checkout")
    return home


@pytest.fixture
def built(user_home: Path, rootfs_archive: Path) -> Path:
    shutil.copy(rootfs_archive, user_home / "system.tar")
    (user_home / "system.tar").chmod(0o644)
    done = run_as_user(user_home, DRYDOCK, "sandbox", "build", "--tarball", "system.tar")
    assert done.returncode == 0, done.stderr
    return user_home


@pytest.mark.timeout(180)
@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_sandboxes_work_and_confine(built, storage):
    done = run_as_user(built, sys.executable, "-c", PROGRAM, storage)
    assert done.stdout.splitlines() == ["copiedagent", "new", "1000", "0", "512", "sealed", "refused", "sent"], (
        done.stderr
    )
    system = next((built / ".cache/drydock/imported").glob("[!.]*"))
    assert (system / "bin/bash").stat().st_uid == FIRST_ID
    assert (built / "work" / "down").stat().st_uid == UID
    assert list((built / "work" / "state").iterdir()) == []


def test_doctor_says_what_works_and_what_is_missing(user_home):
    done = run_as_user(user_home, DRYDOCK, "doctor", "--json")
    found = {item["name"]: item for item in json.loads(done.stdout)}
    assert done.returncode == 1
    assert found["user namespace"]["level"] == "pass"
    assert found["overlay mount"]["level"] == "pass"
    assert found["root file system"]["level"] == "fail"
    assert "drydock sandbox build" in found["root file system"]["remedy"]


def test_a_user_without_ids_is_told_how_to_get_them(home):
    home.parent.chmod(0o755)
    make_home(home, with_ids=False)
    done = run_as_user(home, DRYDOCK, "sandbox", "build")
    assert done.returncode == 2, done
    assert "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ordinary" in done.stderr
    shown = run_as_user(home, DRYDOCK, "doctor").stdout
    assert "user namespace" in shown
    assert "fail" in shown


def test_entering_as_root_changes_nothing():
    script = (
        "from drydock.sandbox.rootless import enter_user_namespace; from pathlib import Path;"
        "before = Path('/proc/self/uid_map').read_text(); enter_user_namespace();"
        "assert Path('/proc/self/uid_map').read_text() == before"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
