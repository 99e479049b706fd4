"""What one sandbox may use. Set by a shell that then becomes process 1, so every command inherits it.

The number of processes is a true bound per sandbox where the kernel keeps `pid_max` per pid namespace (Linux 6.14);
elsewhere it is a control group, or at least RLIMIT_NPROC, which counts per user id of the sandbox. Memory (RLIMIT_DATA:
private writable memory, so that runtimes which merely reserve address space work), CPU time and file size are bounds
per process; what all files together may take is bounded by the size of the writable layer (see `overlay`), what all
processes together may use by `control_groups`, where there are any.

The limits are set inside the user namespace: set before it exists, the one on processes would be shared by all.
"""

import os
import re
from dataclasses import dataclass

_PIDS_OF_THE_KERNEL = 301
"""Smallest pid_max that Linux accepts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one sandbox; None leaves a bound as the driver has it."""

    processes: int = 512
    memory_mb: int | None = 8192
    cpu_s: int | None = 3600
    file_mb: int | None = None
    open_files: int = 4096

    def shell_prefix(self) -> list[str]:
        """A command line that sets the limits, hard and soft, and becomes the program that follows it (POSIX sh)."""
        bounds = {
            "-c": 0,
            "-p": self.processes,
            "-n": self.open_files,
            "-d": None if self.memory_mb is None else self.memory_mb * 1024,
            "-t": self.cpu_s,
            "-f": None if self.file_mb is None else self.file_mb * 2048,
        }
        lines = [f"ulimit {option} {bound}" for option, bound in bounds.items() if bound is not None]
        return ["/bin/sh", "-c", f'{" && ".join(lines)} && exec "$@"', "sh"]

    @property
    def pid_max(self) -> int:
        """The highest process number in the sandbox: it bounds how many processes there can be."""
        return max(self.processes, _PIDS_OF_THE_KERNEL)


def has_pid_max_per_namespace() -> bool:
    """Whether `kernel.pid_max` belongs to the pid namespace; before Linux 6.14 writing it would change the host."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (6, 14)
