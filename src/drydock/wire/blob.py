"""The safetensors container under a DSSST1 frame: named numpy arrays and a few strings, checked byte by byte.

A little-endian u64 header length, a JSON header padded with spaces to a multiple of 8, then the arrays back to back.
Bytes come from strangers: every length and offset is checked, the arrays must cover the body exactly, and nothing is
ever unpickled. BF16, which numpy lacks, is read as float32 and never written.

Large data is held in `new_buffer`s and handed on as memoryviews: touching fresh memory costs more than copying (numpy
asks the kernel for huge pages, which a `bytes` of the same size does not get: measured, a quarter of the time).
"""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from drydock.errors import WireError

MAX_HEADER_BYTES: Final = 64 * 1024 * 1024
MAX_TENSORS: Final = 100_000
MAX_DIMENSIONS: Final = 64
"""As many as numpy has; a longer shape is refused before its extents are multiplied."""
MAX_CONTAINERS: Final = 4_000_000
"""Opening brackets in one JSON text. Each may become an object of 60 bytes or more, many times its two characters."""
METADATA_KEY: Final = "__metadata__"

type Bytes = bytes | bytearray | memoryview

_NUMPY: Final[dict[str, np.dtype[Any]]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES: Final = {dtype: name for name, dtype in _NUMPY.items()}
# Lengths (modulo 2**16) whose first two bytes look like a pickle: some readers refuse them, so none is written.
_PICKLE_LENGTHS: Final = frozenset({0x0280, 0x0380, 0x0480, 0x0580})


def new_buffer(size: int) -> memoryview:
    """Writable memory of `size` bytes, whose content is anything."""
    return memoryview(np.empty(size, np.uint8))


def joined(parts: Iterable[Bytes]) -> memoryview:
    """The parts back to back in one new buffer."""
    views = [memoryview(part).cast("B") for part in parts]
    whole = new_buffer(sum(map(len, views)))
    position = 0
    for view in views:
        whole[position : position + len(view)] = view
        position += len(view)
    return whole


def storable(array: NDArray[Any]) -> NDArray[Any] | None:
    """The array little-endian and C-contiguous, None when safetensors has no such dtype."""
    dtype = array.dtype.newbyteorder("<")
    return np.asarray(array, dtype=dtype, order="C") if dtype in _NAMES else None


def blob_parts(strings: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> Sequence[Bytes]:
    """Container of `storable` arrays, as what stands back to back in it; the arrays are not copied.

    One of 0 dimensions is written with shape [1].
    """
    header: dict[str, Any] = {METADATA_KEY: dict(strings)}
    offset = 0
    parts: list[memoryview] = []
    for key in sorted(arrays, key=lambda key: (-arrays[key].itemsize, key)):
        array = arrays[key]
        header[key] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape) or [1],
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
        parts.append(memoryview(array.reshape(-1).view(np.uint8)))
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    length = -(-len(text) // 8) * 8
    while length & 0xFFFF in _PICKLE_LENGTHS:
        length += 8
    if length > MAX_HEADER_BYTES:
        raise WireError(f"the frame's header would be {length} bytes, over {MAX_HEADER_BYTES}: send arrays, not lists")
    return [struct.pack("<Q", length) + text.ljust(length), *parts]


def read_blob(data: Bytes, *, copy: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Metadata and arrays: writable copies, or views of `data` where its alignment allows.

    Raises WireError, saying what is wrong, for any malformed byte string.
    """
    header, body = _read_header(memoryview(data).cast("B"))
    metadata = header.pop(METADATA_KEY, {})
    if not isinstance(metadata, dict):
        raise WireError("the frame's metadata is not an object")
    return metadata, _read_arrays(header, body, copy)


def parse_json(text: str | bytes, what: str) -> Any:
    """JSON from outside, WireError naming `what` when it is none or holds too many lists and objects."""
    count = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if count > MAX_CONTAINERS:
        raise WireError(f"{what} holds {count} brackets, over the limit of {MAX_CONTAINERS}: send arrays, not lists")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{what} is not valid JSON: {error}") from error


def _read_header(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    if len(view) < 8:
        raise WireError(f"{len(view)} bytes are too few for a frame")
    (length,) = struct.unpack_from("<Q", view)
    if length > MAX_HEADER_BYTES:
        magic = bytes(view[:4])
        if magic[0] == 0x80 and 2 <= magic[1] <= 5:
            raise WireError("the data is a pickle, which is never read: send a DSSST1 frame")
        if magic == b"PK\x03\x04":
            raise WireError("the data is a zip archive, which is never read: send a DSSST1 frame")
        raise WireError(f"header length {length} is over the limit of {MAX_HEADER_BYTES} bytes")
    if length > len(view) - 8:
        raise WireError(f"header length {length} is over the {len(view) - 8} bytes that follow it")
    header = parse_json(bytes(view[8 : 8 + length]), "the frame's header")
    if not isinstance(header, dict):
        raise WireError("the frame's header is not an object")
    return header, view[8 + length :]


def _read_arrays(header: dict[str, Any], body: memoryview, copy: bool) -> dict[str, NDArray[Any]]:
    if len(header) > MAX_TENSORS:
        raise WireError(f"{len(header)} tensors are over the limit of {MAX_TENSORS} a frame")
    entries = sorted((_read_entry(key, entry) for key, entry in header.items()), key=lambda e: (e.begin, e.end))
    position = 0
    arrays: dict[str, NDArray[Any]] = {}
    for entry in entries:
        if entry.begin != position or entry.end > len(body):
            raise WireError(
                f"tensor {entry.key!r} lies at [{entry.begin}, {entry.end}) where {position} of {len(body)} bytes "
                "are read: offsets overlap, leave a hole or exceed the data"
            )
        array = entry.read(body[entry.begin : entry.end])
        arrays[entry.key] = array.copy() if copy or not array.flags.aligned else array
        position = entry.end
    if position != len(body):
        raise WireError(f"{len(body) - position} bytes follow the last tensor")
    return arrays


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    shape: tuple[int, ...]
    begin: int
    end: int
    read_flat: Callable[[memoryview], NDArray[Any]]

    def read(self, data: memoryview) -> NDArray[Any]:
        try:
            return self.read_flat(data).reshape(self.shape)
        except (ValueError, OverflowError) as error:
            raise WireError(f"tensor {self.key!r} cannot have the shape {self.shape}: {error}") from error


def _read_entry(key: str, entry: Any) -> _Entry:
    if not isinstance(entry, dict):
        raise WireError(f"tensor {key!r} has no description")
    name, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not _naturals(shape) or len(shape) > MAX_DIMENSIONS:
        raise WireError(f"tensor {key[:80]!r} has a bad shape: {str(shape)[:80]}")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise WireError(f"tensor {key[:80]!r} has bad offsets: {str(offsets)[:80]}")
    if name == "BF16":
        itemsize, read_flat = 2, _widen_bfloat16
    elif isinstance(name, str) and name in _NUMPY:
        dtype = _NUMPY[name]
        itemsize, read_flat = dtype.itemsize, lambda data: np.frombuffer(data, dtype)
    else:
        raise WireError(f"tensor {key!r} has the dtype {name!r}, which cannot be read")
    size = itemsize
    for extent in shape:
        size *= extent
    if offsets[1] - offsets[0] != size:
        raise WireError(f"tensor {key!r} of shape {shape} needs {size} bytes, its offsets {offsets} hold another count")
    return _Entry(key, tuple(shape), offsets[0], offsets[1], read_flat)


def _naturals(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _widen_bfloat16(data: memoryview) -> NDArray[np.float32]:
    return (np.frombuffer(data, "<u2").astype("<u4") << np.uint32(16)).view("<f4")
