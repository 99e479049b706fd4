"""docs/configuration.md, made from the configuration models: `python -m drydock.training.config_reference`."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from drydock.training.config import RunConfig, WarmStartStage
from drydock.training.config_file import section_model

INTRODUCTION = """\
# Configuration

Every key of a run's TOML file, and of `section.key=value` on the command line. Unknown keys are refused, with the
nearest known name. Paths in the file are relative to the file, paths on the command line to the working directory.
This page is made from the configuration models (`make docs`).
"""


def reference() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    for name, field in RunConfig.model_fields.items():
        inner = section_model(field.annotation)
        if inner is not None and get_origin(field.annotation) is not list:
            parts.extend(_section(field.alias or name, inner))
    parts.append("## `[[warm_start]]`\n")
    parts.append("Supervised fine-tuning before reinforcement learning, one table a stage, in order.\n")
    parts.append(_table(WarmStartStage))
    return "\n".join(parts)


def _section(dotted: str, model: type[BaseModel]) -> Iterator[str]:
    if any(section_model(field.annotation) is None for field in model.model_fields.values()):
        yield f"## `[{dotted}]`\n"
        yield _table(model)
    for name, field in model.model_fields.items():
        inner = section_model(field.annotation)
        if inner is not None:
            yield from _section(f"{dotted}.{field.alias or name}", inner)


def _table(model: type[BaseModel]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if section_model(field.annotation) is not None:
            continue
        meaning = " ".join((field.description or "").split())
        kind = _type_name(field.annotation).replace("|", "\\|")
        lines.append(f"| `{field.alias or name}` | {kind} | {_default(field.default)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _type_name(annotation: Any) -> str:
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if not arguments:
        name: str = annotation.__name__
        return {"str": "text", "int": "integer", "float": "number", "bool": "true/false"}.get(name, name.lower())
    if all(isinstance(argument, str) for argument in arguments):
        return " or ".join(f"`{argument}`" for argument in arguments)
    if get_origin(annotation) in (list, tuple):
        return f"list of {_type_name(arguments[0])}"
    if get_origin(annotation) is dict:
        return "table"
    return _type_name(arguments[0])


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)}`" if isinstance(value, list | tuple) else f"`{value}`"


if __name__ == "__main__":
    print(reference(), end="")
