"""DSSST1 frames: trees of arrays and plain values as one safetensors blob, without torch and without pickle.

A frame is a safetensors container (blob.py) whose metadata holds two JSON strings: "dss" (format version and skeleton
of the tree) and optionally "op" (metadata of the operation). Skeleton nodes: ["j", json], ["t", key] and, for an array
of 0 dimensions, ["t", key, {"scalar": true}], ["d", [[name, node], ...]], ["l", [node, ...]], ["u", [node, ...]]
(tuple).

What round-trips: dict (string keys), list, tuple, str, bool, int, float (NaN and infinities included), None and numpy
arrays of any dtype of safetensors. Two deliberate losses: a numpy scalar becomes the plain number, and BF16, which
numpy lacks, decodes as float32. Whatever would change silently is refused at encoding: keys that are not strings, and
two arrays whose dotted paths coincide. A frame whose tree names one tensor twice, which is what such a collision looks
like when another writer let it pass, is refused at decoding.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from drydock.errors import WireError
from drydock.wire.blob import METADATA_KEY, Bytes, blob_parts, joined, parse_json, read_blob, storable

VERSION: Final = "DSSST1"

type Node = list[Any]

_ROOT_KEY: Final = "__root__"
_EMPTY_KEY: Final = "__dss_empty__"
_SCALAR: Final = {"scalar": True}
_PLAIN: Final = frozenset({int, float, str, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame: the tree, and the "op" object ({} when the frame has none)."""

    value: Any
    metadata: dict[str, Any] = field(default_factory=dict)


def encode_frame(value: Any, metadata: dict[str, Any] | None = None) -> bytes:
    """Encode a tree; `metadata` becomes the frame's "op" object.

    Raises WireError, naming the place in the tree, for a key that is not a string, a value of another type, an array
    dtype that safetensors lacks, or two arrays with the same dotted path.
    """
    return b"".join(encode_parts(value, metadata))


def encode_buffer(value: Any, metadata: dict[str, Any] | None = None) -> memoryview:
    """As `encode_frame`, several times faster for a large tree."""
    return joined(encode_parts(value, metadata))


def encode_parts(value: Any, metadata: dict[str, Any] | None = None) -> Sequence[Bytes]:
    """As `encode_frame`, as what stands back to back in the frame; arrays are not copied."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        tree = _encode_node(value, (), arrays)
        strings = {"dss": json.dumps({"v": VERSION, "tree": tree})}
        if metadata is not None:
            strings["op"] = json.dumps(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"a DSSST1 frame cannot hold this value: {error}") from error
    if not arrays:
        arrays[_EMPTY_KEY] = np.zeros(1, np.uint8)
    return blob_parts(strings, arrays)


def decode_frame(data: Bytes, *, copy: bool = True) -> Frame:
    """Decode a frame; arrays are writable copies. Raises WireError, saying what is wrong, for anything else.

    copy: without it arrays may be views of `data`, which must not change while they live.
    """
    strings, arrays = read_blob(data, copy=copy)
    if not isinstance(strings.get("dss"), str):
        raise WireError("not a DSSST1 frame: its header has no 'dss' metadata")
    dss = parse_json(strings["dss"], "the frame's 'dss' metadata")
    if not isinstance(dss, dict) or dss.get("v") != VERSION or "tree" not in dss:
        version = dss.get("v") if isinstance(dss, dict) else None
        raise WireError(f"frame version {version!r} is not {VERSION}")
    try:
        value = _decode_node(dss["tree"], arrays)
    except RecursionError as error:
        raise WireError("the frame's tree is nested too deeply") from error
    operation = parse_json(strings["op"], "the frame's 'op' metadata") if "op" in strings else {}
    if not isinstance(operation, dict):
        raise WireError("the frame's 'op' metadata is not an object")
    return Frame(value, operation)


def _encode_node(value: Any, path: tuple[str, ...], arrays: dict[str, NDArray[Any]]) -> Node:
    match value:
        case np.ndarray():
            return _encode_array(value, path, arrays)
        case np.generic():
            return ["j", value.item()]
        case None | bool() | int() | float() | str():
            return ["j", value]
        case dict():
            pairs: list[Node] = []
            for key, item in value.items():
                if not isinstance(key, str):
                    raise WireError(f"{_place(path)}: key {key!r} is not a string")
                pairs.append([key, _encode_node(item, (*path, key), arrays)])
            if all(node[0] == "j" for _, node in pairs):
                return ["j", {key: node[1] for key, node in pairs}]
            return ["d", pairs]
        case tuple():
            return ["u", [_encode_node(item, (*path, str(i)), arrays) for i, item in enumerate(value)]]
        case list():
            if _PLAIN.issuperset(map(type, value)):
                return ["j", value]
            nodes = [_encode_node(item, (*path, str(i)), arrays) for i, item in enumerate(value)]
            if all(node[0] == "j" for node in nodes):
                return ["j", [node[1] for node in nodes]]
            return ["l", nodes]
        case _:
            raise WireError(f"{_place(path)}: a frame cannot hold a {type(value).__name__}")


def _encode_array(array: NDArray[Any], path: tuple[str, ...], arrays: dict[str, NDArray[Any]]) -> Node:
    key = ".".join(path) if path else _ROOT_KEY
    if key in arrays:
        raise WireError(f"two arrays have the path {key!r}: a key with a dot collides with a nested one; rename it")
    if key in (_EMPTY_KEY, METADATA_KEY):
        raise WireError(f"{_place(path)}: the name is reserved by the format")
    stored = storable(array)
    if stored is None:
        raise WireError(f"{_place(path)}: arrays of dtype {array.dtype} cannot be sent")
    arrays[key] = stored
    return ["t", key, _SCALAR] if array.ndim == 0 else ["t", key]


def _place(path: tuple[str, ...]) -> str:
    return "at " + ".".join(path) if path else "at the root"


def _decode_node(node: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    match node:
        case ["j", value]:
            return value
        case ["t", str(key), *rest]:
            if key not in arrays:
                raise WireError(f"the tree names tensor {key!r}, which is missing or was named before")
            array = arrays.pop(key)
            if not rest:
                return array
            if rest != [_SCALAR] or array.size != 1:
                raise WireError(f"tensor {key!r} is no scalar as the tree says")
            return array.reshape(())
        case ["d", list(pairs)]:
            return dict(_decode_pair(pair, arrays) for pair in pairs)
        case ["l", list(nodes)]:
            return [_decode_node(item, arrays) for item in nodes]
        case ["u", list(nodes)]:
            return tuple(_decode_node(item, arrays) for item in nodes)
        case _:
            raise WireError(f"the frame's tree holds an unknown node: {str(node)[:80]}")


def _decode_pair(pair: Any, arrays: dict[str, NDArray[Any]]) -> tuple[str, Any]:
    match pair:
        case [str(key), node]:
            return key, _decode_node(node, arrays)
        case _:
            raise WireError(f"the frame's tree holds an unknown dict entry: {str(pair)[:80]}")
