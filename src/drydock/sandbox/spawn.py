"""Starting process 1 of a sandbox under bubblewrap and keeping hold of it.

The child is held at a gate (bubblewrap's block descriptor) while the caller writes its id map, sets its limits and
records it; only then does it set up its root and run. When the driver goes away, however it goes, the socket to
process 1 closes, process 1 ends, and the kernel kills whatever is left in its pid namespace.
"""

import contextlib
import fcntl
import functools
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import SandboxError

_CHILD_WAIT_S = 10.0
_LABEL = "drydock-sandbox="
_SEALED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, slots=True)
class Spawned:
    """A started sandbox: bubblewrap's own process, process 1 inside (by host id), and the socket to it."""

    process: subprocess.Popen[bytes]
    init_pid: int
    init_pidfd: int
    connection: socket.socket
    errors: int

    def complaint(self) -> str:
        """What bubblewrap and process 1 wrote to standard error."""
        return os.pread(self.errors, 4096, 0).decode(errors="replace").strip()

    def kill(self) -> None:
        """Kill process 1 and with it everything in the sandbox; does nothing when it is dead."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.init_pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Release the descriptors; the processes must be dead."""
        os.close(self.init_pidfd)
        os.close(self.errors)


def spawn(
    prefix: Sequence[str],
    options: Sequence[str],
    python: Sequence[str],
    *,
    gate_option: str,
    filter_program: bytes | None,
    at_gate: Callable[[int], None],
    label: str,
) -> Spawned:
    """Run `prefix bwrap options -- python... pid1`, calling `at_gate` with the child's host pid before it is let go.

    label: name of the sandbox; `drydock-sandbox=NAME` stands on the command lines of bubblewrap and of process 1.

    gate_option: `--userns-block-fd` where the caller writes the id map, else `--block-fd`.
    Blocks for a few milliseconds. Raises SandboxError with bubblewrap's complaint when the child does not appear.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    info_read, info_write = os.pipe()
    gate_read, gate_write = os.pipe()
    source = _memory_file("pid1", Path(__file__).with_name("pid1.py").read_bytes())
    errors = os.memfd_create("errors", os.MFD_CLOEXEC)
    inherited = [theirs.fileno(), info_write, gate_read, source]
    filter_options: list[str] = []
    if filter_program is not None:
        inherited.append(_memory_file("filter", filter_program))
        filter_options = ["--seccomp", str(inherited[-1])]
    command = [*prefix, "bwrap", "--info-fd", str(info_write), gate_option, str(gate_read), *filter_options, *options]
    command += ["--", *python, "-I", "-S", f"/dev/fd/{source}", str(theirs.fileno()), f"{_LABEL}{label}"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=inherited,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
    except OSError as error:
        for descriptor in (info_read, gate_write, errors):
            os.close(descriptor)
        ours.close()
        raise SandboxError(f"{command[0]} cannot be started: {error.strerror}") from error
    finally:
        theirs.close()
        for descriptor in inherited[1:]:
            os.close(descriptor)
    pidfd = -1
    try:
        pid = _child_pid(info_read)
        if pid is None:
            complaint = os.pread(errors, 4096, 0).decode(errors="replace").strip()
            raise SandboxError(f"bubblewrap did not start a sandbox: {complaint or 'no message'}")
        pidfd = os.pidfd_open(pid)
        at_gate(pid)
        os.write(gate_write, b"1")
    except BaseException:
        if pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        process.kill()
        process.wait()
        os.close(errors)
        ours.close()
        raise
    finally:
        os.close(info_read)
        os.close(gate_write)
    return Spawned(process, pid, pidfd, ours, errors)


def labelled_processes() -> dict[int, str]:
    """The processes of this machine that were started for a sandbox: its name by their pid."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for argument in (entry / "cmdline").read_bytes().split(b"\0"):
                if argument.startswith(_LABEL.encode()):
                    found[int(entry.name)] = os.fsdecode(argument).removeprefix(_LABEL)
    return found


def _child_pid(descriptor: int) -> int | None:
    """The child's pid from bubblewrap's information object, which arrives in pieces; None when it never does."""
    text = b""
    written = select.poll()  # not select(), which takes no descriptor above 1023
    written.register(descriptor, select.POLLIN)
    while b"}" not in text:
        if not written.poll(_CHILD_WAIT_S * 1000):
            return None
        piece = os.read(descriptor, 4096)
        if not piece:
            return None
        text += piece
    return int(json.loads(text)["child-pid"])


@functools.cache
def _sealed_file(name: str, content: bytes) -> int:
    """A read-only file in memory, shared by all sandboxes of this process."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALED)
    return descriptor


def _memory_file(name: str, content: bytes) -> int:
    """A descriptor of its own, at offset 0, of the sealed file with this content."""
    return os.open(f"/proc/self/fd/{_sealed_file(name, content)}", os.O_RDONLY | os.O_CLOEXEC)
