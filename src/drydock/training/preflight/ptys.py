"""Whether the machine has pseudo-terminals left: agents' terminals take one each, and the kernel has a fixed number."""

import os
from pathlib import Path

from drydock.finding import Finding, Level

_COUNTS = Path("/proc/sys/kernel/pty")
_RESERVE = 4
"""Times what is needed that should be left, because others take them too."""


def check_ptys(needed: int) -> list[Finding]:
    """One finding; `needed`: terminals that are open at the same time."""
    remedy = "close what holds them (`ls -l /proc/*/fd | grep ptmx`), or sysctl kernel.pty.max=4096"
    try:
        left = int((_COUNTS / "max").read_text()) - int((_COUNTS / "nr").read_text())
    except (OSError, ValueError):
        left = None
    try:
        for descriptor in os.openpty():
            os.close(descriptor)
    except OSError as error:
        return [Finding("ptys", Level.FAIL, f"no pseudo-terminal can be opened: {error.strerror}", remedy)]
    if left is None:
        return [Finding("ptys", Level.PASS, "one can be opened; how many are left is not shown here")]
    detail = f"{left} pseudo-terminals left, {needed} may be needed at the same time"
    level = Level.FAIL if left < needed else Level.WARN if left < _RESERVE * needed else Level.PASS
    return [Finding("ptys", level, detail, remedy)]
