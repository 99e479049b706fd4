"""Reading the fields of a request body by hand, and refusing them by name.

By hand, because a request holds the whole history and a model class would validate all of it at every call.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, cast

from pydantic_core import from_json

from drydock.chat.refusal import RequestRefused

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FieldTable:
    """What becomes of each field of an API's request.

    read: by the dialect itself. overridden: parameters that the run decides; sending one is counted and told.
    ignored: accepted, since nothing that the policy or the agent sees depends on it.
    refused: accepted only when empty, false or null; the value says what to do instead.
    """

    read: frozenset[str]
    overridden: frozenset[str]
    ignored: frozenset[str]
    refused: Mapping[str, str]

    def check(self, fields: Fields) -> tuple[str, ...]:
        """Names of the overridden fields that were sent; raises RequestRefused for what is refused or unknown."""
        sent: list[str] = []
        for name, value in fields.items():
            if name in self.read or name in self.ignored or value is None:
                continue
            if name in self.overridden:
                sent.append(name)
            elif (advice := self.refused.get(name)) is not None:
                if value:
                    refuse(name, f"{name} is not supported by this endpoint; {advice}")
            else:
                near = get_close_matches(name, [*self.read, *self.overridden, *self.ignored, *self.refused], n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                refuse(name, f"{name} is a field that this endpoint does not know{hint}; leave it out")
        return tuple(sent)


def names(*lines: str) -> frozenset[str]:
    """The words of `lines`."""
    return frozenset(name for line in lines for name in line.split())


def refuse(param: str, message: str) -> NoReturn:
    """Raise RequestRefused for the field `param`."""
    raise RequestRefused(message, param=param)


def load_fields(body: bytes) -> Fields:
    """The JSON object of a body; raises RequestRefused for anything else."""
    try:
        raw = _parsed(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the request body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RequestRefused("the request body must be a JSON object")
    return cast("Fields", raw)


def _parsed(body: bytes) -> Any:
    """The body's JSON value, by a parser that takes a third of the time: the whole history comes with each call.

    What it refuses (lone surrogates, deep nesting) the standard library has the last word on.
    """
    try:
        return from_json(body)
    except ValueError:
        return json.loads(body)


def flag(fields: Fields, name: str) -> bool:
    """A field that is true, false, null or missing."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        refuse(name, f"{name} must be true or false")
    return bool(value)


def positive_integer(fields: Fields, name: str) -> int | None:
    """A field that is an integer of at least 1, or null or missing."""
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        refuse(name, f"{name} must be a positive integer")
    return value


def model_name(fields: Fields) -> str:
    """What the agent calls the policy."""
    model = fields.get("model")
    return model if isinstance(model, str) else "policy"


def raw_messages(fields: Fields) -> list[Any]:
    """The field `messages`, which every API wants filled."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        refuse("messages", "messages must be a non-empty list")
    return messages


def items(value: object, where: str, param: str) -> list[Any]:
    """`value` as the list that it must be."""
    if not isinstance(value, list):
        refuse(param, f"{where} must be a list")
    return value


def mapping(value: object, where: str, param: str) -> Fields:
    """`value` as the object that it must be."""
    if not isinstance(value, dict):
        refuse(param, f"{where} must be an object")
    return cast("Fields", value)


def text(entry: Fields, name: str, where: str, param: str) -> str:
    """`entry[name]` as the text that it must be."""
    value = entry.get(name)
    if not isinstance(value, str):
        refuse(param, f"{where}.{name} must be a text")
    return value


def part_texts(value: object, kinds: Collection[str], where: str, param: str) -> list[str]:
    """Texts of a list of content parts, all of which must be of these kinds."""
    texts: list[str] = []
    for place, entry in enumerate(items(value, where, param)):
        part = mapping(entry, f"{where}[{place}]", param)
        if part.get("type") not in kinds:
            refuse(param, f"{where}[{place}] is of type {part.get('type')!r}; only text is supported")
        texts.append(text(part, "text", f"{where}[{place}]", param))
    return texts


def function_head(tool: Fields, keys: Collection[str], where: str) -> Fields:
    """Name and description of a tool's definition. Raises RequestRefused for a key with a value that is not known."""
    only_keys({name: value for name, value in tool.items() if value}, keys, where, "tools")
    function: Fields = {"name": text(tool, "name", where, "tools")}
    if tool.get("description") is not None:
        function["description"] = text(tool, "description", where, "tools")
    return function


def only_keys(entry: Fields, known: Collection[str], where: str, param: str) -> None:
    """Raise RequestRefused for a key of `entry` that is neither known nor null."""
    for name, value in entry.items():
        if name not in known and value is not None:
            refuse(param, f"{where}.{name} is not supported by this endpoint; leave it out")
