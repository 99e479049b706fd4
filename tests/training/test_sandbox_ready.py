"""Before a run: tasks of which no sandbox can be made are named, all of them, and nothing is built."""

from pathlib import Path

import pytest
from builders.tasks import write_task

from drydock.errors import TaskError
from drydock.sandbox.rootfs import rootfs_path
from drydock.training.rollout_config import SandboxConfig
from drydock.training.sandbox_ready import check_environments


def test_every_task_that_cannot_have_a_sandbox_is_named(tmp_path: Path) -> None:
    tasks = [
        write_task(tmp_path / "fine"),
        write_task(tmp_path / "address", dockerfile="FROM debian\nADD https://example.org/x /x\n"),
        write_task(tmp_path / "image", dockerfile="FROM alpine:3\n"),
        write_task(tmp_path / "missing", dockerfile="FROM debian\nWORKDIR /x\nCOPY nothing .\n"),
    ]
    (tasks[0] / "tests" / "Dockerfile").write_text("FROM debian\nONBUILD RUN true\n")
    rootfs_path(tmp_path / "cache").mkdir(parents=True)
    with pytest.raises(TaskError) as caught:
        check_environments(SandboxConfig(kwargs={"cache_dir": str(tmp_path / "cache")}), tasks)
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    for line, (place, reason) in zip(
        lines,
        [
            (f"{tasks[0]}/tests/Dockerfile:2", "ONBUILD"),
            (f"{tasks[1]}/environment/Dockerfile:2", "address"),
            (f"{tasks[2]}/environment/Dockerfile:1", "no root file system for the image alpine:3"),
            (f"{tasks[3]}/environment/Dockerfile:3", "nothing is not in the build context"),
        ],
        strict=True,
    ):
        assert line.startswith(place)
        assert reason in line


def test_other_environments_and_mapped_images_are_not_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path / "image", dockerfile="FROM alpine:3\n")
    check_environments(SandboxConfig(environment="docker"), [task])
    system = tmp_path / "alpine"
    system.mkdir()
    check_environments(SandboxConfig(kwargs={"base_images": {"alpine:*": str(system)}}), [task])
