"""The root file systems in the cache: held while sandboxes stand on them, outdated once nothing leads to them.

They are locked as layers are (see `layer_store`), so that nobody deletes one that a sandbox of any process stands on.
"""

from pathlib import Path

from drydock.sandbox.layer_store import layer_store
from drydock.sandbox.rootfs import rootfs_path


def hold_system(system: Path, cache_dir: Path) -> Path | None:
    """Hold a root file system until `release_system` is given what this returns: None for one outside the cache."""
    place = system.resolve()
    if place.parent not in _stores(cache_dir):
        return None
    held = layer_store(place.parent).acquire_existing([place.name])
    return held[0] if held else None


def release_system(held: Path | None) -> None:
    """Give a root file system of `hold_system` back."""
    if held is not None:
        layer_store(held.parent).release([held])


def outdated_systems(cache_dir: Path) -> list[Path]:
    """Those that are built for another version or other ids, and those whose name was given to a newer archive."""
    wanted = {rootfs_path(cache_dir).resolve()}
    images = cache_dir / "images"
    if images.is_dir():
        wanted |= {path.resolve() for path in images.iterdir()}
    found = [path for store in _stores(cache_dir) if store.is_dir() for path in store.iterdir()]
    return [
        path
        for path in found
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".") and path not in wanted
    ]


def _stores(cache_dir: Path) -> tuple[Path, ...]:
    return tuple((cache_dir / name).resolve() for name in ("rootfs", "imported"))
