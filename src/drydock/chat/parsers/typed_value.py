"""Arguments that a format writes as bare text, given the type that the tool's JSON schema says.

A text that does not fit its schema stays a text, so that the tool's own check names the fault. Without a schema it is
a text too.
"""

import json
from typing import Any, cast

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import json_text, read_json, skip_space

_DEPTH = 8
"""How many references and unions are followed."""


def parameter_schemas(tools: Tools, name: str) -> dict[str, frozenset[str]]:
    """JSON types of each parameter of the tool `name`; a parameter without known types is missing."""
    for tool in tools or ():
        function = tool.get("function")
        if isinstance(function, dict) and function.get("name") == name:
            parameters = function.get("parameters")
            root = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
            properties = root.get("properties")
            if isinstance(properties, dict):
                known = ((str(key), _types(schema, root, _DEPTH)) for key, schema in properties.items())
                return {key: types for key, types in known if types}
    return {}


def typed_value(text: str, types: frozenset[str] | None) -> object:
    """`text` as a value of one of `types`. A text that may be a string is one, unless it is a list, object or null."""
    if not types or types == {"string"}:
        return text
    stripped = text.strip()
    if "boolean" in types and "string" not in types and stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    if "null" in types and stripped.lower() in ("null", "none"):
        return None
    found = read_json(stripped, 0)
    if found is None or skip_space(stripped, found[1]) != len(stripped):
        return text
    value = found[0]
    wanted = types - {"number", "integer", "boolean"} if "string" in types else types
    return value if _type_of(value) & wanted and json_text(value) is not None else text


def _type_of(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            finite = value - value == 0
            return ({"number", "integer"} if value.is_integer() else {"number"}) if finite else set()
        case dict():
            return {"object"}
        case list():
            return {"array"}
        case _:
            return set()


def _types(schema: object, root: dict[str, Any], depth: int) -> frozenset[str]:
    """JSON types that a schema allows; empty where it says nothing that is understood."""
    if not isinstance(schema, dict) or not depth:
        return frozenset()
    fields = cast("dict[str, Any]", schema)
    kind = fields.get("type")
    if isinstance(kind, str):
        return frozenset({kind, "null"} if fields.get("nullable") is True else {kind})
    if isinstance(kind, list):
        return frozenset(str(one) for one in kind)
    if isinstance(reference := fields.get("$ref"), str):
        return _types(_referenced(root, reference), root, depth - 1)
    for union in ("anyOf", "oneOf", "allOf"):
        if isinstance(members := fields.get(union), list):
            return frozenset[str]().union(*(_types(member, root, depth - 1) for member in members))
    if isinstance(values := fields.get("enum"), list):
        return frozenset(kind for value in values for kind in _type_of(value) or {"string"})
    return frozenset()


def _referenced(root: dict[str, Any], reference: str) -> object:
    found: object = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def typed_arguments(pairs: list[tuple[str, str]], tools: Tools, name: str) -> str:
    """Written arguments of a call of the tool `name` as a JSON text."""
    schemas = parameter_schemas(tools, name)
    return json.dumps({key: typed_value(text, schemas.get(key)) for key, text in pairs}, ensure_ascii=False)
