"""Making a child process end with its parent, on Linux by the kernel itself.

The parent can be killed with a signal it cannot see; its children must not stay behind. The kernel signals a child
when the parent's thread ends (`PR_SET_PDEATHSIG`). Elsewhere the end of the pipe or socket between the two is what
tells the child, so every caller keeps one as well.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, signal_number: signal.Signals) -> None:
    """Has this process get `signal_number` when its parent ends, or ends it at once when that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)
