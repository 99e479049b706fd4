"""Whether killed drivers have left something for the reaper."""

import os
from pathlib import Path

from drydock.file_lock import try_lock_existing
from drydock.finding import Finding, Level
from drydock.sandbox.locations import default_state_dir


def check_leftovers(state_dir: Path | None = None) -> list[Finding]:
    """One finding: how many sandboxes have no owner any more. Removes nothing."""
    count = 0
    for file in (state_dir or default_state_dir()).glob("*.json"):
        lock = try_lock_existing(file)
        if lock is not None:
            os.close(lock)
            count += 1
    level = Level.WARN if count else Level.PASS
    detail = f"{count} sandboxes of drivers that were killed" if count else "none"
    return [Finding("leftovers", level, detail, "run `drydock reap`; the next run does it too")]
