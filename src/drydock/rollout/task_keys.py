"""Keys of a task.toml that are one slip away from one that Harbor knows.

Harbor ignores what it does not know, so a misspelt limit is no limit and nobody is told. Keys that resemble none are
left alone: sets of tasks carry keys of their own.
"""

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from harbor.models.task.config import TaskConfig
from pydantic import BaseModel

_OLD_NAMES = {"version", "memory", "storage", "allow_internet"}
"""Read by Harbor before its models see them."""

_LIKENESS = 0.8

Location = tuple[str | int, ...]


def misspelt_keys(
    document: dict[str, Any], model: type[BaseModel] = TaskConfig, above: Location = ()
) -> Iterator[tuple[Location, str]]:
    """The location of each unknown key with the known one that was probably meant."""
    for key, value in document.items():
        field = model.model_fields.get(key)
        if field is None:
            near = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=_LIKENESS)
            if near and key not in _OLD_NAMES:
                yield (*above, key), near[0]
            continue
        inner = _model_in(field.annotation)
        if inner is None:
            continue
        if isinstance(value, dict):
            yield from misspelt_keys(value, inner, (*above, key))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, dict):
                    yield from misspelt_keys(item, inner, (*above, key, number))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, itself or in a union or list; None where there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)
