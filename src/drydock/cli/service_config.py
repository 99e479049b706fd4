"""The settings of a service from a TOML file, options and `key=value` words; later ones win.

Relative paths of the file are relative to it, others to the working directory.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drydock.errors import ConfigError
from drydock.service.settings import ServiceSettings
from drydock.training.config_file import parse_override, read_toml

_PATHS = ("state_dir", "sync_dir", "tls_cert", "tls_key")


def load_service_settings(file: Path | None, options: Mapping[str, Any], words: Sequence[str]) -> ServiceSettings:
    """The validated settings; options that are None were not given.

    Raises ConfigError for an unreadable file, an unknown key, offering the nearest one, or a value that cannot be.
    """
    tree = _read(file) if file is not None else {}
    tree |= {key: value for key, value in options.items() if value is not None}
    for word in words:
        key, value = parse_override(word)
        head, *rest = key.split(".")
        if not rest:
            tree[head] = value
        elif len(rest) == 1 and isinstance(tree.setdefault(head, {}), dict):
            tree[head] = {**tree[head], rest[0]: value}
        else:
            raise ConfigError(f"cannot read the setting {word!r}: write key=value or pool.H200=8")
    try:
        return ServiceSettings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("; ".join(map(_explain, error.errors(include_input=False)))) from None


def _read(file: Path) -> dict[str, Any]:
    tree = read_toml(file)
    for key in _PATHS:
        if isinstance(tree.get(key), str):
            tree[key] = file.resolve().parent / Path(tree[key]).expanduser()
    if isinstance(tree.get("model_dirs"), list):
        here = file.resolve().parent
        tree["model_dirs"] = [here / Path(folder).expanduser() for folder in tree["model_dirs"]]
    return tree


def _explain(problem: Mapping[str, Any]) -> str:
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{key}: missing; give --{key.replace('_', '-')} or {key}=…"
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, ServiceSettings.model_fields, n=1)
        return f"unknown setting {key}" + (f": did you mean {close[0]}?" if close else "")
    said = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {said}" if key else said
