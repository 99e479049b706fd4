"""Where the sandbox keeps things when nobody says otherwise, by the XDG base directory rules."""

import os
from pathlib import Path


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


def default_cache_dir() -> Path:
    """Root file systems and Dockerfile layers: can be deleted at any time and is then rebuilt."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "drydock"


def default_state_dir() -> Path:
    """One record per running sandbox, by which the reaper finds what a killed driver left."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "drydock" / "sandboxes"
