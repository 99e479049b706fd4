"""Whether the folders that are written to can be, and have room: nothing is left in them by the look."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from drydock.finding import Finding, Level

MEBIBYTE = 1 << 20
LEAST_BYTES = 200 * MEBIBYTE
"""With less no step of a run can be written."""

SCARCE_BYTES = 5 << 30


def check_disk(
    places: Mapping[str, Path], *, least_bytes: int = LEAST_BYTES, scarce_bytes: int = SCARCE_BYTES
) -> list[Finding]:
    """A finding for each folder, which need not exist yet, under the name of the setting that moves it.

    Below `least_bytes` it fails, below `scarce_bytes` it warns.
    """
    return [_look(setting, place, least_bytes, scarce_bytes) for setting, place in places.items()]


def existing(place: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def _look(setting: str, place: Path, least_bytes: int, scarce_bytes: int) -> Finding:
    folder = existing(place)
    if not folder.is_dir():
        return Finding(setting, Level.FAIL, f"{setting}: {folder} is a file", "name a folder")
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        detail = f"{setting}: nothing can be written to {folder}: {error.strerror}"
        return Finding(setting, Level.FAIL, detail, f"make it writable, or set {setting} to another folder")
    level = Level.FAIL if free < least_bytes else Level.WARN if free < scarce_bytes else Level.PASS
    detail = f"{setting}: {free / MEBIBYTE:,.0f} MiB free for {place}"
    return Finding(setting, level, detail, f"make room, or set {setting} to another folder")
