"""Removing what a killed driver left behind.

Mounts go with their namespace and process 1 ends with its socket, so usually only the record is left, the control
groups, the files of a sandbox whose writable layer was on disk, and unfinished layers. A process 1 that still lives
(its socket was inherited by something) is killed. Sandboxes of living drivers are left alone, other runs' too: the
owner of each holds a lock, see `records`.
"""

import contextlib
import os
import select
import shutil
import signal
from pathlib import Path

from drydock.file_lock import try_lock, try_lock_existing
from drydock.own_directory import remove_abandoned
from drydock.sandbox.control_groups import remove_group
from drydock.sandbox.layer_store import remove_unfinished
from drydock.sandbox.records import Record, in_this_pid_space, read_record, start_time
from drydock.sandbox.rootfs_archive import remove_unfinished_imports

_DEATH_WAIT_S = 5.0


def reap(state_dir: Path, cache_dir: Path | None = None) -> list[str]:
    """Remove every sandbox recorded under `state_dir` whose owner is dead, unfinished layers in `cache_dir`, and
    temporary directories of killed drivers. Returns a line about each thing removed.
    """
    removed: list[str] = []
    for file in sorted(state_dir.glob("*.json")) + sorted(state_dir.glob(".*.json.tmp")):
        lock = try_lock_existing(file)
        if lock is None:
            continue
        try:
            record = read_record(file)
            if record is not None:
                removed += _remove(record, state_dir)
            file.unlink(missing_ok=True)
        finally:
            os.close(lock)
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
