"""Whether a replayed tool call still says what was sampled.

A harness parses arguments and writes them anew: other spacing, escapes and key order, nulls and duplicate keys gone, a
value that was written as a JSON text decoded, the tool called by another of its names. All that the policy said is
still there, so it need not see the difference. Anything else (another value, a key more or fewer, another tool with
other arguments) is another call, which the policy did not make and has to see.
"""

import json
from typing import Any, cast

from drydock.chat.messages import ToolCall


def same_call(sampled: ToolCall, replayed: ToolCall) -> bool:
    """Whether `replayed`, which has the id of `sampled`, says the same; the names do not count."""
    if sampled.arguments == replayed.arguments:
        return True
    try:
        return _alike(json.loads(sampled.arguments, strict=False), json.loads(replayed.arguments, strict=False))
    except (ValueError, RecursionError):
        return False


def _alike(sampled: object, replayed: object) -> bool:
    if isinstance(sampled, str) and isinstance(replayed, dict | list | bool | int | float):
        return _decodes_to(sampled, replayed)
    if isinstance(sampled, dict) and isinstance(replayed, dict):
        left, right = _said(sampled), _said(replayed)
        return left.keys() == right.keys() and all(_alike(value, right[key]) for key, value in left.items())
    if isinstance(sampled, list) and isinstance(replayed, list):
        return len(sampled) == len(replayed) and all(map(_alike, sampled, replayed))
    return isinstance(sampled, bool) == isinstance(replayed, bool) and sampled == replayed


def _said(value: dict[Any, Any]) -> dict[str, object]:
    return {key: item for key, item in cast("dict[str, object]", value).items() if item is not None}


def _decodes_to(text: str, value: object) -> bool:
    try:
        decoded = json.loads(text, strict=False)
    except ValueError:
        return False
    return not isinstance(decoded, str) and _alike(decoded, value)
