"""Configuration models as Markdown tables of their keys, for the pages that are made from the code."""

from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from drydock.training.config_file import section_model

NAMES = {bool: "true/false", float: "number", int: "integer", str: "text", SecretStr: "text"}


def key_table(model: type[BaseModel], *, blocks: bool = False) -> str:
    """A row for each key that holds a plain value, with `blocks` also for those that hold a section of their own."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        section = section_model(field.annotation)
        if section is not None and not blocks:
            continue
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        if section is not None:
            lines.append(f"| `{field.alias or name}` | block | | {meaning} |")
            continue
        kind = _type_name(field.annotation).replace("|", "\\|")
        lines.append(f"| `{field.alias or name}` | {kind} | {_default(field.default)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _type_name(annotation: Any) -> str:
    if annotation in NAMES:
        return NAMES[annotation]
    origin = get_origin(annotation)
    arguments = [argument for argument in get_args(annotation) if argument not in (type(None), Ellipsis)]
    if not arguments:
        name: str = annotation.__name__
        return name.lower()
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin in (list, tuple):
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return "table"
    return " or ".join(map(_type_name, arguments))


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ("", [], (), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)}`" if isinstance(value, list | tuple) else f"`{value}`"
