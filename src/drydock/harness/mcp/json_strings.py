"""A JSON value with its strings changed, which is safe where changing its text is not."""

from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
"""Of a value; Python's own functions for schemas and JSON go down as deep as they are called."""


def with_strings(value: Any, change: Callable[[str], str], *, depth: int = MAX_DEPTH) -> Any:
    """The value with every string and every key changed. Raises ValueError where it is nested deeper than `depth`."""
    if isinstance(value, str):
        return change(value)
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        raise ValueError("a JSON value is nested too deeply")
    if isinstance(value, list):
        return [with_strings(one, change, depth=depth - 1) for one in value]
    return {change(key): with_strings(one, change, depth=depth - 1) for key, one in value.items()}
