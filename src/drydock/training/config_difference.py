"""Whether a run that is to go on has the configuration that it began with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drydock.errors import ConfigError


def refuse_another_run(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ConfigError, naming the keys, where what decides a run's steps differs; both are nested tables."""
    earlier, wanted = _flat(before), _flat(now)
    differing = sorted(key for key in wanted.keys() | earlier.keys() if wanted.get(key) != earlier.get(key))
    if differing:
        shown = "; ".join(f"{key} was {earlier.get(key)!r}, is {wanted.get(key)!r}" for key in differing)
        raise ConfigError(
            f"trainer.resume_mode: the run in {folder} was another one: {shown}; set them as they were, or start anew "
            "in another folder"
        )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
