"""Run configuration from a TOML file and `section.key=value` overrides.

Paths in the file are relative to the file, paths on the command line to the working directory. An unknown key is a
ConfigError that offers what it was meant to be (`nearest_key`).
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from drydock.errors import ConfigError
from drydock.training.config import RunConfig
from drydock.training.nearest_key import suggestion

PATH_KEYS = (
    "data.train",
    "data.eval",
    "agent.system_prompt_file",
    "agent.skills",
    "trainer.ckpt_path",
    "sandbox.state_dir",
    "trainer.policy.model.path",
)
"""Keys whose relative paths are resolved; a model path only if such a folder exists (it may be a hub id)."""


def load_run_config(file: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The validated configuration of a run; see `load_config`."""
    return load_config(RunConfig, file, overrides)


def load_config[Config: BaseModel](
    model: type[Config],
    file: Path | None,
    overrides: Sequence[str] = (),
    below: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda given: {},
) -> Config:
    """A validated configuration of the kind `model`.

    below: from all that file and overrides say, what holds where they say nothing.

    Raises ConfigError for a missing or malformed file, a malformed override, an unknown key or an invalid value.
    """
    tree: dict[str, Any] = {}
    if file is not None:
        tree = read_toml(file)
        _resolve_paths(tree, file.resolve().parent)
    given: dict[str, Any] = {}
    for override in overrides:
        key, value = parse_override(override)
        _put(given, key, value)
    _resolve_paths(given, Path.cwd())
    _merge(tree, given)
    whole = below(tree)
    _merge(whole, tree)
    try:
        return model.model_validate(whole)
    except ValidationError as error:
        raise ConfigError(_explain(error, known_keys(model))) from None


def parse_override(text: str) -> tuple[str, Any]:
    """`section.key=value` as a dotted key and a TOML value; what is no TOML value is a string."""
    key, separator, raw = text.partition("=")
    key = key.strip().lstrip("+")
    if not separator or not key or any(not part for part in key.split(".")):
        raise ConfigError(f"cannot read the override {text!r}: write section.key=value, e.g. trainer.seed=1")
    try:
        return key, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return key, {"null": None, "None": None, "True": True, "False": False}.get(raw, raw)


def to_toml(config: BaseModel) -> str:
    """The resolved configuration as TOML text that `load_config` reads back to an equal one."""
    return tomli_w.dumps(config.model_dump(mode="json", by_alias=True, exclude_none=True))


def read_toml(file: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises ConfigError saying what is wrong with it."""
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {file}") from None
    except IsADirectoryError:
        raise ConfigError(f"{file} is a directory: name a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None


def _resolve_paths(tree: dict[str, Any], base: Path) -> None:
    for dotted in PATH_KEYS:
        *sections, key = dotted.split(".")
        node: Any = tree
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
        if not isinstance(node, dict) or node.get(key) is None:
            continue
        value = node[key]
        if dotted == "trainer.policy.model.path":
            folder = base / Path(str(value)).expanduser()
            if folder.is_dir():
                node[key] = str(folder)
        elif isinstance(value, str):
            path = str(base / Path(value).expanduser())
            node[key] = [path] if dotted.startswith("data.") else path
        elif isinstance(value, list):
            node[key] = [str(base / Path(str(item)).expanduser()) for item in value]
    stages = tree.get("warm_start")
    if isinstance(stages, dict):
        stages = list(stages.values())
    for stage in stages if isinstance(stages, list) else []:
        if isinstance(stage, dict) and "conversations" in stage:
            stage["conversations"] = str(base / Path(str(stage["conversations"])).expanduser())


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, key = dotted.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{dotted}: another override gives the section {section} a value of its own")
    tree[key] = value


def _merge(base: dict[str, Any], over: dict[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        elif isinstance(value, dict) and isinstance(base.get(key), list) and all(part.isdigit() for part in value):
            for index, entry in value.items():
                _merge_entry(key, base[key], int(index), entry)
        else:
            base[key] = value


def _merge_entry(key: str, entries: list[Any], index: int, entry: Any) -> None:
    if index >= len(entries):
        raise ConfigError(f"{key}.{index}: there are only {len(entries)} entries in {key}, counted from 0")
    if isinstance(entry, dict) and isinstance(entries[index], dict):
        _merge(entries[index], entry)
    else:
        entries[index] = entry


def _explain(error: ValidationError, known: Sequence[str]) -> str:
    lines = []
    for problem in error.errors():
        location = ".".join(str(part) for part in problem["loc"]) or "configuration"
        if problem["type"] == "extra_forbidden":
            lines.append(f"unknown key {location}{suggestion(location, known)}")
        else:
            lines.append(f"{location}: {problem['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


def known_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """Every dotted key of the configuration, sections expanded."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        inner = section_model(field.annotation)
        keys.extend(known_keys(inner, f"{dotted}.") if inner else [dotted])
    return keys


def section_model(annotation: Any) -> type[BaseModel] | None:
    """The section a field holds, also behind `| None` or in a list; None where it holds plain values."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
