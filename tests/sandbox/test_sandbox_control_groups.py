"""Control groups: found where they are mounted, in either version; made, filled and removed for real."""

import subprocess
from pathlib import Path

import pytest

from drydock.sandbox.control_groups import (
    ControlGroup,
    GroupLimits,
    Parent,
    group_parents,
    group_settings,
    hierarchies,
    own_groups,
    remove_group,
)

LIMITS = GroupLimits(memory_mb=64, cpus=0.5, processes=100)

# /proc/self/mountinfo and /proc/self/cgroup of a systemd machine, of a container on it, and of one with version 1
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
IN_CONTAINER = "700 690 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
SEPARATE = (
    "31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 23 0:29 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 23 0:30 / / rw - ext4 /dev/sda1 rw\n"
)


def test_hierarchies_are_read_from_the_mount_table() -> None:
    assert list(hierarchies(UNIFIED)) == [(2, Path("/sys/fs/cgroup"), "/", ())]
    assert list(hierarchies(IN_CONTAINER)) == [(2, Path("/sys/fs/cgroup"), "/docker/abc", ())]
    assert list(hierarchies(SEPARATE)) == [
        (1, Path("/sys/fs/cgroup/cpu,cpuacct"), "/", ("cpu",)),
        (1, Path("/sys/fs/cgroup/memory"), "/docker/abc", ("memory",)),
        (2, Path("/sys/fs/cgroup/unified"), "/", ()),
    ]


def test_own_groups() -> None:
    text = "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n1:name=systemd:/x:y\n0::/user.slice/s.scope\n"
    found = own_groups(text)
    assert (found["cpu"], found["memory"], found[""]) == ("/a", "/docker/abc", "/user.slice/s.scope")
    assert found["name=systemd"] == "/x:y"


@pytest.mark.parametrize(
    ("version", "controllers", "settings"),
    [
        (2, ("memory",), {"memory.max": "67108864", "memory.swap.max": "0"}),
        (2, ("cpu", "pids"), {"cpu.max": "50000 100000", "pids.max": "100"}),
        (1, ("memory",), {"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "67108864"}),
        (1, ("cpu",), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
        (1, ("pids",), {"pids.max": "100"}),
    ],
)
def test_limits_in_the_words_of_each_version(version, controllers, settings):
    assert group_settings(Parent(Path("/x"), version, controllers), LIMITS) == settings
    assert group_settings(Parent(Path("/x"), version, controllers), GroupLimits()) == {}


@pytest.mark.parametrize("kind", ["as found", "version 2"])
def test_a_group_holds_a_process_and_its_children_and_is_removed_after_them(kind):
    parents = group_parents()
    if kind == "version 2":
        mounts = [row for row in hierarchies(Path("/proc/self/mountinfo").read_text()) if row[0] == 2]
        parents = tuple(Parent(row[1], 2, ()) for row in mounts[:1])
    if not parents:
        pytest.skip("no control group can be made here")
    group = ControlGroup("test-of-groups", parents)
    process = subprocess.Popen(["sh", "-c", "read line; sleep 60 & echo; wait"], stdin=subprocess.PIPE, stdout=-1)
    try:
        try:
            group.create(LIMITS)
        except PermissionError:
            pytest.skip("this control group hierarchy cannot be written")
        group.add(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        process.stdout.readline()
        for directory in group.directories:
            assert len((directory / "cgroup.procs").read_text().split()) == 2
        assert not remove_group(group.directories[0], "another")
        assert group.new_oom_kills() == 0
    finally:
        subprocess.run(["pkill", "-P", str(process.pid)], check=False)
        process.kill()
        process.wait()
        group.remove()
    assert not any(directory.exists() for directory in group.directories)
