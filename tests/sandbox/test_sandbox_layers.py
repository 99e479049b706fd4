"""Dockerfiles replayed into sandboxes: right content, built once, failures told with their line."""

import asyncio
import time
from pathlib import Path

import pytest

from drydock.errors import TaskError
from drydock.sandbox.rootfs import rootfs_path

pytestmark = pytest.mark.sandbox


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of the test's own, with the machine's root file system in it."""
    directory = tmp_path / "cache"
    (directory / "rootfs").mkdir(parents=True)
    rootfs_path(directory).symlink_to(rootfs_path())
    return directory


def context(tmp_path: Path, name: str, files: dict[str, str]) -> None:
    for path, text in files.items():
        file = tmp_path / name / "environment" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def layers(cache: Path) -> list[Path]:
    return [path for path in (cache / "layers").iterdir() if not path.name.startswith(".")]


async def test_copies_runs_and_settings(start, cache, tmp_path):
    context(tmp_path, "task", {"src/a.py": "a", "src/sub/b.py": "b", "one.txt": "1", "two.txt": "2", "x.sh": "echo x"})
    environment = await start(
        "FROM debian:bookworm-slim\n"
        "ENV NAME=value\n"
        "RUN useradd -m agent && echo built-by-$(id -un) > /built\n"
        "WORKDIR /app\n"
        "COPY src /app/src\n"
        "COPY --chown=agent:agent --chmod=600 *.txt texts/\n"
        "COPY x.sh /bin/x\n"
        "USER agent\n"
        "RUN echo $NAME-$(id -un) > ~/mine\n",
        cache_dir=cache,
    )
    shown = await environment.exec(
        "cat /built ~/mine; cat src/a.py src/sub/b.py; stat -c '%n %U %a' texts/*; readlink -f /bin/x; pwd; id -un"
    )
    assert shown.stdout == (
        "built-by-root\nvalue-agent\nabtexts/one.txt agent 600\ntexts/two.txt agent 600\n/usr/bin/x\n/app\nagent\n"
    ), shown.stderr


async def test_layers_are_reused_and_follow_content(start, cache, tmp_path):
    dockerfile = "FROM debian\nRUN date +%N > /stamp\nCOPY data /data\n"
    context(tmp_path, "one", {"data": "1"})
    context(tmp_path, "two", {"data": "2"})
    one = await start(dockerfile, name="one", cache_dir=cache)
    two = await start(dockerfile, name="two", cache_dir=cache)
    stamps = [(await environment.exec("cat /stamp /data")).stdout for environment in (one, two)]
    assert stamps[0].splitlines()[0] == stamps[1].splitlines()[0]
    assert [stamp.splitlines()[1] for stamp in stamps] == ["1", "2"]
    assert len(layers(cache)) == 3
    await one.exec("echo changed > /data")
    again = await start(dockerfile, name="one", cache_dir=cache)
    assert (await again.exec("cat /data")).stdout == "1"


async def test_concurrent_rollouts_of_a_task_build_once(start, cache):
    dockerfile = "FROM debian\nRUN sleep 0.5; cat /proc/sys/kernel/random/uuid > /id\nWORKDIR /w\n"
    environments = await asyncio.gather(*(start(dockerfile, name=f"r{i}", cache_dir=cache) for i in range(6)))
    seen = {(await environment.exec("cat /id")).stdout for environment in environments}
    assert len(seen) == 1
    assert len(layers(cache)) == 2


async def test_failing_run_names_its_line_and_shows_its_output_and_leaves_no_layer(start, cache, tmp_path):
    with pytest.raises(TaskError) as caught:
        await start("FROM debian\nWORKDIR /app\nRUN echo about to fail && exit 3\n", cache_dir=cache)
    message = str(caught.value)
    assert f"{tmp_path}/task/environment/Dockerfile:3: RUN ended with status 3" in message
    assert "about to fail" in message
    assert "allow_network" in message
    assert len(layers(cache)) == 1
    assert not list((tmp_path / "task" / "state").iterdir())


PAST_ITS_DISK = "for n in $(seq 64); do head -c 1M /dev/zero > /part$n; done; sleep {seconds}"
PAST_ITS_MEMORY = "python3 -c 'bytearray(100 << 20); bytearray(5000 << 20)'"
PAST_ITS_CPU_TIME = "python3 -c 'while True: pass'"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (PAST_ITS_DISK.format(seconds=0), r"RUN writes more than 16 MiB.*max_layer_mb"),
        (PAST_ITS_DISK.format(seconds=60), r"RUN writes more than 16 MiB"),
        (PAST_ITS_MEMORY, r"RUN ended with status 1 [\s\S]*MemoryError"),
        (PAST_ITS_CPU_TIME, r"RUN ended with status 13[37]"),
    ],
    ids=["disk at its end", "disk meanwhile", "memory", "CPU time"],
)
async def test_run_past_its_bounds_is_ended_and_named(start, cache, tmp_path, command, complaint):
    began = time.monotonic()
    with pytest.raises(TaskError, match=f"Dockerfile:2: {complaint}"):
        await start(
            f"FROM debian\nRUN {command}\n",
            cache_dir=cache,
            max_layer_mb=16,
            task={"build_timeout_sec": 1, "cpus": 1, "memory_mb": 64},
        )
    assert time.monotonic() - began < 30
    assert not [path for path in (cache / "layers").iterdir() if path.suffix != ".lock"]
    assert not list((tmp_path / "task" / "state").iterdir())


async def test_unknown_image_and_missing_file_are_refused_with_line(start, tmp_path):
    with pytest.raises(TaskError, match=r"Dockerfile:2: there is no root file system for the image alpine:3"):
        await start("\nFROM alpine:3\n")
    with pytest.raises(TaskError, match=r"Dockerfile:2: missing\.txt is not in the build context"):
        await start("FROM debian\nCOPY missing.txt /\n", name="other")


async def test_image_can_be_mapped(start):
    environment = await start("FROM python:3.12-slim\n", base_images={"python:3.12*": "debian"})
    assert (await environment.exec("python3 -c 'print(1)'")).stdout == "1\n"


async def test_cancelled_build_leaves_nothing(start, cache, tmp_path):
    task = asyncio.create_task(start("FROM debian\nRUN sleep 60\n", cache_dir=cache))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [path for path in (cache / "layers").iterdir() if path.suffix != ".lock"]
    assert not list((tmp_path / "task" / "state").iterdir())


async def test_copy_only_dockerfile_starts_quickly_from_its_layer(start, cache, tmp_path):
    context(tmp_path, "task", {"f": "x"})
    dockerfile = "FROM debian\nWORKDIR /app\nCOPY f .\nENV A=b\n"
    await start(dockerfile, cache_dir=cache)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        await start(dockerfile, cache_dir=cache)
        best = min(best, time.perf_counter() - began)
    assert best < 0.25  # 20 ms on a quiet machine


async def test_files_without_dockerfile_go_to_the_workdir_of_a_prebuilt_image(start, tmp_path):
    context(tmp_path, "task", {"data/x": "hello"})
    environment = await start("", task={"docker_image": "debian:12", "workdir": "/work"})
    assert (await environment.exec("cat data/x; pwd")).stdout == "hello/work\n"
