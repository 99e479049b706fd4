"""Where a driver and its sandboxes keep things when nobody says otherwise, by the XDG base directory rules."""

import os
from pathlib import Path


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


def default_cache_dir() -> Path:
    """Root file systems and Dockerfile layers: can be deleted at any time and is then rebuilt."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "drydock"


def driver_state_dir() -> Path:
    """What outlives a command: the driver's lock, and the sandboxes' records below it."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "drydock"


def sandboxes_in(state_dir: Path) -> Path:
    """Below a driver's state directory, the one that its sandboxes are recorded in."""
    return state_dir / "sandboxes"


def default_state_dir() -> Path:
    """One record per running sandbox, by which the reaper finds what a killed driver left."""
    return sandboxes_in(driver_state_dir())
