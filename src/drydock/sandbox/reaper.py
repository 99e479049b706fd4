"""Removing what a killed driver left behind.

Mounts go with their namespace and process 1 ends with its socket, so usually only the record is left, the control
groups, the files of a sandbox whose writable layer was on disk, and unfinished layers. A process 1 that still lives
(its socket was inherited by something) is killed, and so are the processes of a sandbox whose owner died while it was
being started: bubblewrap's child then waits for a parent that is gone, and no record names it. Sandboxes of living
drivers are left alone, other runs' too: the owner of each holds a lock, see `records`.
"""

import contextlib
import os
import select
import shutil
import signal
import time
from pathlib import Path

from drydock.file_lock import try_lock, try_lock_existing
from drydock.own_directory import remove_abandoned
from drydock.sandbox.control_groups import remove_group
from drydock.sandbox.layer_store import remove_unfinished
from drydock.sandbox.records import Record, in_this_pid_space, read_record, start_time
from drydock.sandbox.rootfs_archive import remove_unfinished_imports
from drydock.sandbox.spawn import labelled_processes

_DEATH_WAIT_S = 5.0
_FORK_WAIT_S = 1.0
_PAUSE_S = 0.02


def reap(state_dir: Path, cache_dir: Path | None = None) -> list[str]:
    """Remove every sandbox recorded under `state_dir` whose owner is dead, unfinished layers in `cache_dir`, and
    temporary directories of killed drivers. Returns a line about each thing removed.
    """
    removed: list[str] = []
    with contextlib.ExitStack() as locks:
        dead = _dead(state_dir, locks)
        here = [record for _, record in dead if record is not None and in_this_pid_space(record)]
        half_started = _kill_half_started({record.name for record in here if record.init is None})
        removed += [f"sandbox {name}: process {pid}, half started, killed" for pid, name in half_started.items()]
        for file, record in dead:
            if record is not None:
                removed += _remove(record, state_dir)
            file.unlink(missing_ok=True)
    removed += remove_abandoned()
    if cache_dir is not None:
        removed += _unfinished_layers(cache_dir / "layers") + remove_unfinished_imports(cache_dir)
    return removed


def _remove(record: Record, state_dir: Path) -> list[str]:
    done = []
    if record.init is not None and in_this_pid_space(record) and _kill(*record.init):
        done.append(f"sandbox {record.name}: process {record.init[0]} and everything in its pid namespace killed")
    for group in record.groups:
        if remove_group(Path(group), record.name):
            done.append(f"sandbox {record.name}: control group {group} removed")
    if record.directory is not None and Path(record.directory).parent == state_dir and Path(record.directory).exists():
        shutil.rmtree(record.directory, ignore_errors=True)
        done.append(f"sandbox {record.name}: directory {record.directory} deleted")
    return done or [f"sandbox {record.name}: record of a dead driver (pid {record.owner[0]}) deleted"]


def _dead(state_dir: Path, locks: contextlib.ExitStack) -> list[tuple[Path, Record | None]]:
    """The files of records that have no owner, locked until `locks` is left, each with what it says."""
    found = []
    for file in sorted(state_dir.glob("*.json")) + sorted(state_dir.glob(".*.json.tmp")):
        lock = _lock(file)
        if lock is not None:
            locks.callback(os.close, lock)
            found.append((file, read_record(file)))
    return found


def _lock(file: Path) -> int | None:
    """The lock of a record; None while its owner lives.

    A process that the owner had just forked when it died holds the lock on until it has begun its program: that is
    waited for.
    """
    give_up = time.monotonic() + _FORK_WAIT_S
    while (lock := try_lock_existing(file)) is None and time.monotonic() < give_up:
        record = read_record(file)
        if record is None or not in_this_pid_space(record) or start_time(record.owner[0]) == record.owner[1]:
            return None
        time.sleep(_PAUSE_S)
    return lock


def _kill_half_started(names: set[str]) -> dict[int, str]:
    """Kill the processes of sandboxes whose owner died before their record named one; names by pid.

    Looked for during `_FORK_WAIT_S`, since such a process may not have begun its program yet.
    """
    killed: dict[int, str] = {}
    give_up = time.monotonic() + _FORK_WAIT_S
    while names and time.monotonic() < give_up:
        for pid, name in labelled_processes().items():
            started = start_time(pid) if name in names else None
            if started is not None and _kill(pid, started):
                killed[pid] = name
        time.sleep(_PAUSE_S)
    return killed


def _kill(pid: int, started: int) -> bool:
    """Kill a process, and wait for its end, if it is the one that started then; its descriptor keeps the pid meant."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll(_DEATH_WAIT_S * 1000)
        return True
    finally:
        os.close(descriptor)


def _unfinished_layers(layers: Path) -> list[str]:
    """Remove what builds that nobody is carrying out any more left."""
    names = {path.name[1:].split(".")[0] for path in layers.glob(".*.*") if path.is_dir()}
    removed = []
    for name in sorted(names):
        lock = try_lock(layers / f".{name}.lock")
        if lock is None:
            continue
        try:
            if remove_unfinished(layers / name):
                removed.append(f"unfinished layer {name} deleted")
        finally:
            os.close(lock)
    return removed
