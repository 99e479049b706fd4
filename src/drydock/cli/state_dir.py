"""Where a driver keeps what outlives a command: below XDG_STATE_HOME, or ~/.local/state."""

import os
from pathlib import Path


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/drydock`, or `~/.local/state/drydock`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "drydock"
