"""Shards of an ordinary user's driver are in the user namespace that it entered, and root there as it is."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.ordinary_user import make_home, run_as_user

pytestmark = pytest.mark.sandbox

PROGRAM = """
from drydock.sandbox.rootless import enter_user_namespace
enter_user_namespace()
import asyncio, os
from pathlib import Path
import psutil
from builders.scripted_shard import ScriptedSetup, scripted_shards
from builders.tiny_tokenizer import build_tiny_tokenizer
from drydock.proxy.settings import ProxySettings
from drydock.rollout import RolloutSettings
from drydock.rollout.shards import RolloutShards

async def main():
    setup = ScriptedSetup(
        tokenizer=build_tiny_tokenizer(Path.home() / "tokenizer"),
        replies=["x"],
        rollouts=RolloutSettings(environment="local"),
        limits=ProxySettings(context_tokens=100, max_new_tokens=10),
        concurrency=1,
    )
    async with RolloutShards(scripted_shards(setup, 1, Path.home() / "logs")):
        [shard] = psutil.Process().children()
        for namespace in ("user", "mnt"):
            same = os.readlink(f"/proc/{shard.pid}/ns/{namespace}") == os.readlink(f"/proc/self/ns/{namespace}")
            print(namespace, same)
        print("ids", shard.uids().effective, Path(f"/proc/{shard.pid}/uid_map").read_text().split())

asyncio.run(main())
"""


@pytest.fixture
def user_home() -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("newuidmap") is None:
        pytest.skip("needs root, to become an ordinary user, and newuidmap: apt-get install uidmap")
    directory = Path(tempfile.mkdtemp(prefix="drydock-user-"))
    directory.chmod(0o755)
    make_home(directory / "home")
    if run_as_user(directory / "home", sys.executable, "-c", "import drydock").returncode != 0:
        shutil.rmtree(directory)
        pytest.skip("an ordinary user may not read this checkout")
    yield directory / "home"
    shutil.rmtree(directory)


def test_a_shard_is_in_its_drivers_namespaces(user_home: Path) -> None:
    done = run_as_user(user_home, sys.executable, "-c", PROGRAM)
    assert done.stdout.splitlines() == ["user True", "mnt True", "ids 0 ['0', '4321', '1', '1', '200000', '65536']"], (
        done.stderr
    )
