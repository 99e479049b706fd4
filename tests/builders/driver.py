"""`drydock` as a user starts it, and a look at what it has started on the machine."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from drydock.sandbox.records import read_records

COMMAND = (sys.executable, "-m", "drydock.cli.main")


@dataclass(frozen=True)
class Footprint:
    """What a driver had running at one moment. Processes are told apart by pid and start time together.

    sandboxes: the first processes of its sandboxes. ports: where it or a child listened. pids: in no particular order.
    """

    processes: tuple[psutil.Process, ...]
    sandboxes: tuple[psutil.Process, ...]
    ports: tuple[int, ...]

    def remains(self) -> list[str]:
        """What of it is still there."""
        alive = [p for p in {*self.processes, *self.sandboxes} if p.is_running() and p.status() != "zombie"]
        left = [f"process {p.pid}: {' '.join(p.cmdline())}" for p in alive]
        for port in self.ports:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                left.append(f"port {port}")
        return left


@dataclass
class Driver:
    """A running `drydock` command; `output` grows while it runs."""

    process: subprocess.Popen[str]
    state_dir: Path
    output: str = ""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def read(self) -> None:
        """Collect the output until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.output += line
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, pattern: str, timeout_s: float = 90) -> None:
        """Wait until the output matches."""
        with self._changed:
            self._changed.wait_for(lambda: re.search(pattern, self.output) or self._ended(), timeout_s)
            assert re.search(pattern, self.output), f"no {pattern!r} in:\n{self.output}"

    def footprint(self) -> Footprint:
        """What the driver has running now."""
        me = psutil.Process(self.process.pid)
        processes = [me, *me.children(recursive=True)]
        ports: set[int] = set()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                ports |= {connection.laddr.port for connection in listening}
        sandboxes = []
        for record in read_records(self.state_dir / "sandboxes"):
            if record.init is None:
                continue
            with contextlib.suppress(psutil.Error):
                sandboxes.append(psutil.Process(record.init[0]))
        return Footprint(tuple(processes), tuple(sandboxes), tuple(sorted(ports)))

    def stop(self, number: signal.Signals) -> float:
        """Send a signal and wait for the end; seconds that took."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.end(timeout_s=40)
        return time.monotonic() - began

    def end(self, timeout_s: float = 110) -> int:
        """Wait for the end by itself; the exit code."""
        return self.process.wait(timeout_s)

    def _ended(self) -> bool:
        return self.process.poll() is not None


@contextlib.contextmanager
def driver(
    arguments: Sequence[str], state_dir: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Driver]:
    """Start `drydock <arguments>`; killed if it still runs when the block ends."""
    env = {**os.environ, "DRYDOCK_TEST_STATE": str(state_dir), "COLUMNS": "200", **(environment or {})}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env=env,
    )
    running = Driver(process, state_dir)
    reader = threading.Thread(target=running.read, daemon=True)
    reader.start()
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join(timeout=10)


def processes_of(state_dir: Path) -> list[str]:
    """Processes that were started by a driver with this state folder and still run, whoever their parent is now."""
    mark = f"DRYDOCK_TEST_STATE={state_dir}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
    return found


def mounts_below(*folders: Path) -> list[str]:
    """Mounts of this machine that name one of the folders."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if any(str(folder) in line for folder in folders)]
