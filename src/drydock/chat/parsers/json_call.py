"""Calls written as JSON objects: `{"name": ..., "arguments": {...}}`, the arguments under one of a few keys.

Arguments may be an object or a JSON text of one, or missing for none; under a key that the format does not know they
are no arguments, and the object is no call. Raw line breaks within strings, which models
write often, are accepted. JSON is read up to its own end, so nothing inside a string ends it.
"""

import json
from typing import Any, NoReturn, cast

_BESIDE_ARGUMENTS = {"name", "id", "type"}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant)


def skip_space(text: str, place: int) -> int:
    """The place of the first character from `place` on that is no white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def read_json(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value that begins at `start` and the place after it; None where there is no complete one."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def arguments_text(arguments: object) -> str | None:
    """Arguments of a call as JSON text; None where they are no object."""
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(arguments, dict | None):
        return None
    return json_text(cast("dict[str, object]", arguments or {}))


def json_text(value: object) -> str | None:
    """`value` as JSON; None for a number that JSON cannot spell (1e999 is read as infinity)."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return None


def json_call(value: object, *, arguments: tuple[str, ...] = ("arguments",)) -> tuple[str, str] | None:
    """Name and arguments of a decoded call object; None where it is none. The first key of `arguments` present wins."""
    if not isinstance(value, dict):
        return None
    call = cast("dict[str, object]", value)
    name = call.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    key = next((key for key in arguments if key in call), None)
    if key is None and call.keys() - _BESIDE_ARGUMENTS:
        return None
    text = arguments_text(call[key] if key else None)
    return None if text is None else (name.strip(), text)
