"""Keeping freed memory for the next use, in a process that receives large bodies piece by piece.

Each piece (256 KB) is allocated and freed at once. glibc gives such memory back to the kernel and gets it again, a page
fault for every 4 KB of it: measured, three quarters of the time that it takes to receive a body.
"""

import contextlib
import ctypes

_M_TOP_PAD = -2


def keep_freed_memory(size: int) -> None:
    """Lets the process keep up to `size` bytes of freed memory; does nothing where the C library cannot be told."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_TOP_PAD, size)
