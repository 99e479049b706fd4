"""Removing what a killed driver left behind.

Mounts go with their namespace and process 1 ends with its socket, so usually only the record is left, and the files
of a sandbox whose writable layer was on disk. A process 1 that still lives (its socket was inherited by something) is
killed. Sandboxes of living drivers are left alone: an owner counts as dead only when no process has its pid *and*
start time.
"""

import contextlib
import os
import shutil
import signal
from pathlib import Path

from drydock.sandbox.records import Record, forget, read_records, start_time


def reap(state_dir: Path) -> list[str]:
    """Remove every sandbox recorded under `state_dir` whose owner is dead; a line about each thing removed."""
    removed: list[str] = []
    for record in read_records(state_dir):
        if start_time(record.owner[0]) == record.owner[1]:
            continue
        removed += _remove(record, state_dir)
    return removed


def _remove(record: Record, state_dir: Path) -> list[str]:
    done = []
    pid, started = record.init
    if _kill(pid, started):
        done.append(f"sandbox {record.name}: process {pid} and everything in its pid namespace killed")
    if record.directory is not None and Path(record.directory).parent == state_dir and Path(record.directory).exists():
        shutil.rmtree(record.directory, ignore_errors=True)
        done.append(f"sandbox {record.name}: directory {record.directory} deleted")
    forget(state_dir, record.name)
    return done or [f"sandbox {record.name}: record of a dead driver (pid {record.owner[0]}) deleted"]


def _kill(pid: int, started: int) -> bool:
    """Kill a process if it is the one that started then; holding its descriptor, it cannot change meanwhile."""
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        if start_time(pid) != started:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    finally:
        os.close(descriptor)
