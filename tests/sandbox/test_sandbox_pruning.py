"""Old layers are deleted, layers in use stay, and what was deleted is built again."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drydock.cli.sandbox import app
from drydock.sandbox.layer_pruning import list_layers, prune_layers
from drydock.sandbox.layer_store import lock_file
from drydock.sandbox.rootfs import rootfs_path
from drydock.sandbox.rootfs_archive import import_rootfs

pytestmark = pytest.mark.sandbox


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    (directory / "rootfs").mkdir(parents=True)
    rootfs_path(directory).symlink_to(rootfs_path())
    return directory


def age(cache: Path, days: float) -> None:
    then = time.time() - days * 86_400
    for layer in list_layers(cache):
        os.utime(lock_file(layer.path), (then, then))


async def test_layers_in_use_stay_and_old_ones_go(start, cache):
    kept = await start("FROM debian\nRUN echo 1 > /kept\n", name="kept", cache_dir=cache)
    gone = await start("FROM debian\nRUN head -c 3000000 /dev/zero > /gone\n", name="gone", cache_dir=cache)
    await gone.stop(delete=True)
    assert prune_layers(cache, unused_days=1).deleted == ()
    age(cache, 2)
    would = prune_layers(cache, unused_days=1, dry_run=True)
    done = prune_layers(cache, unused_days=1)
    assert would == done
    assert (len(done.deleted), len(done.held), len(done.kept)) == (1, 1, 0)
    assert done.deleted[0].size_bytes >= 3_000_000
    assert (await kept.exec("cat /kept")).stdout == "1\n"
    assert not lock_file(done.deleted[0].path).exists()
    again = await start("FROM debian\nRUN head -c 3000000 /dev/zero > /gone\n", name="gone", cache_dir=cache)
    assert (await again.exec("stat -c %s /gone")).stdout == "3000000\n"


async def test_the_oldest_go_until_the_rest_fits(start, cache):
    layers = []
    for number in range(3):
        name = f"n{number}"
        environment = await start(f"FROM debian\nRUN head -c 2000000 /dev/zero > /{name}\n", name=name, cache_dir=cache)
        await environment.stop(delete=True)
        layers.append(list_layers(cache)[-1].path)
        os.utime(lock_file(layers[-1]), (1000 + number, 1000 + number))
    done = prune_layers(cache, keep_mb=4.5)
    assert [layer.path for layer in done.deleted] == layers[:1]
    assert [layer.path for layer in done.kept] == layers[1:]
    assert done.deleted[0].used_at == min(layer.used_at for layer in (*done.deleted, *done.kept))


async def test_the_command_says_what_it_did(start, cache):
    environment = await start("FROM debian\nRUN true\n", cache_dir=cache)
    age(cache, 40)
    shown = CliRunner().invoke(app, ["prune", "--cache-dir", str(cache), "--dry-run"]).output
    assert "would be deleted: 0 layers" in shown
    assert "in use: 1 layer," in shown
    await environment.stop(delete=True)
    assert "deleted: 1 layer," in CliRunner().invoke(app, ["prune", "--cache-dir", str(cache)]).output
    assert list_layers(cache) == []


async def test_outdated_root_file_systems_go_and_the_current_and_named_ones_stay(start, cache, rootfs_archive):
    old = cache / "rootfs" / "bookworm-of-an-older-version"
    old.mkdir()
    (old / "file").write_bytes(b"x" * 100_000)
    image = import_rootfs(rootfs_archive, cache, "own:1")
    environment = await start("FROM own:1\nRUN true\n", cache_dir=cache)
    assert [layer.path for layer in prune_layers(cache, unused_days=0).deleted] == [old]
    assert not old.exists()
    (cache / "images" / "own%3A1").unlink()
    done = prune_layers(cache, unused_days=0)
    assert image in [layer.path for layer in done.held]
    assert (await environment.exec("true")).return_code == 0
    await environment.stop(delete=True)
    assert image in [layer.path for layer in prune_layers(cache, unused_days=0).deleted]
    assert list((cache / "imported").iterdir()) == []
    assert rootfs_path(cache).is_dir()
