"""Frames: what goes in comes out, and bytes that are no frame are refused with the reason."""

import contextlib
import json
import math
import pickle
import struct
import zipfile
from io import BytesIO
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.errors import WireError
from drydock.wire import decode_frame, encode_frame

DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
names = st.text(st.characters(exclude_characters=".", exclude_categories=()), max_size=6)
trees = st.recursive(
    plain | array,
    lambda children: (
        st.lists(children, max_size=4)
        | st.lists(children, max_size=4).map(tuple)
        | st.dictionaries(names, children, max_size=4)
    ),
    max_leaves=12,
)


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes()
    elif isinstance(expected, dict):
        assert type(got) is dict
        assert list(got) == list(expected)
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for left, right in zip(got, expected, strict=True):
            assert_same(left, right)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(got)
    else:
        assert type(got) is type(expected)
        assert got == expected


@settings(max_examples=300, deadline=None)
@given(trees)
def test_trees_round_trip(tree):
    assert_same(decode_frame(encode_frame(tree)).value, tree)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=6), plain | st.lists(plain, max_size=3), max_size=4))
def test_metadata_round_trips(metadata):
    assert_same(decode_frame(encode_frame({"x": np.ones(2)}, metadata)).metadata, metadata)


def test_a_frame_without_metadata_has_an_empty_one():
    assert decode_frame(encode_frame(1)).metadata == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_travel_plain_and_in_arrays(value):
    got = decode_frame(encode_frame({"plain": value, "array": np.array([value])})).value
    assert_same(got, {"plain": value, "array": np.array([value])})


def test_arrays_of_another_layout_keep_their_values():
    grid = np.arange(12, dtype=">i4").reshape(3, 4)
    got = decode_frame(encode_frame({"big": grid, "turned": grid.T, "strided": grid[:, ::2]})).value
    np.testing.assert_array_equal(got["big"], grid)
    np.testing.assert_array_equal(got["turned"], grid.T)
    np.testing.assert_array_equal(got["strided"], grid[:, ::2])


def test_numpy_scalars_become_plain_numbers():
    got = decode_frame(encode_frame({"loss": np.float32(0.5), "steps": np.int64(3), "ok": np.bool_(True)})).value
    assert got == {"loss": 0.5, "steps": 3, "ok": True}
    assert [type(value) for value in got.values()] == [float, int, bool]


def test_decoded_arrays_are_writable_copies():
    frame = encode_frame({"x": np.zeros(3)})
    decode_frame(frame).value["x"][0] = 1.0
    assert decode_frame(frame).value["x"][0] == 0.0


def test_every_buffer_type_is_read():
    frame = encode_frame({"x": np.arange(3)})
    for data in (frame, bytearray(frame), memoryview(frame)):
        np.testing.assert_array_equal(decode_frame(data).value["x"], [0, 1, 2])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, "a.b"),
        ({"a": {1: "x"}}, "at a: key 1"),
        ({"a": [b"raw"]}, "at a.0: a frame cannot hold a bytes"),
        ({"__dss_empty__": np.ones(1)}, "reserved"),
        ({"c": np.ones(1, np.complex64)}, "complex64"),
        ({"o": np.array([None])}, "object"),
        ({"s": {1, 2}}, "set"),
    ],
)
def test_what_would_change_silently_is_refused_by_name(value, named):
    with pytest.raises(WireError, match=named):
        encode_frame(value)


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(WireError):
        encode_frame(loop)


def test_no_header_is_written_whose_length_looks_like_a_pickle():
    lengths = set()
    for size in range(1400):
        (length,) = struct.unpack_from("<Q", encode_frame("x" * size))
        assert length % 8 == 0
        lengths.add(length)
    assert lengths.isdisjoint({0x0280, 0x0380, 0x0480, 0x0580})
    assert {0x0288, 0x0388, 0x0488, 0x0588} <= lengths


def test_a_header_length_that_looks_like_a_pickle_is_still_read():
    assert decode_frame(build(header_length=0x0280)).value == 1


def build(
    entries: dict[str, Any] | None = None,
    body: bytes = b"",
    *,
    tree: Any = ("j", 1),
    version: str = "DSSST1",
    strings: dict[str, Any] | None = None,
    header_length: int | None = None,
) -> bytes:
    """A frame written by hand, right or wrong."""
    metadata = {"dss": json.dumps({"v": version, "tree": tree})} if strings is None else strings
    header = json.dumps({"__metadata__": metadata, **(entries or {})}).encode()
    return struct.pack("<Q", header_length or len(header)) + header.ljust(header_length or 0) + body


def entry(begin: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def zipped() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", "x" * 100)
    return buffer.getvalue()


T = ["t", "a"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "too few", id="empty"),
        pytest.param(b"\0" * 7, "too few", id="seven bytes"),
        pytest.param(b"\0" * 8, "not valid JSON", id="no header"),
        *(
            pytest.param(pickle.dumps([1] * 50, protocol), "pickle", id=f"pickle {protocol}")
            for protocol in (2, 3, 4, 5)
        ),
        pytest.param(zipped(), "zip", id="zip"),
        pytest.param(struct.pack("<Q", 64 * 2**20 + 1) + b" " * 64, "over the limit", id="header over the cap"),
        pytest.param(struct.pack("<Q", 64) + b" " * 8, "over the 8 bytes", id="header over the data"),
        pytest.param(struct.pack("<Q", 2) + b"[]", "not an object", id="header is a list"),
        pytest.param(struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc", "not valid JSON", id="header is no text"),
        pytest.param(b"[" * 8 + b"[" * 100_000, "over the limit", id="nothing but brackets"),
        pytest.param(struct.pack("<Q", 100_000) + b"[" * 100_000, "not valid JSON", id="nested header"),
        pytest.param(build(version="DSSST2"), "DSSST2", id="another version"),
        pytest.param(build(strings={}), "no 'dss'", id="no structure"),
        pytest.param(build(strings={"dss": 3}), "no 'dss'", id="structure is a number"),
        pytest.param(build(strings={"dss": "{"}), "'dss' metadata", id="structure is broken"),
        pytest.param(build(strings={"dss": '{"v":"DSSST1","tree":["j",1]}', "op": "[]"}), "'op'", id="op is a list"),
        pytest.param(build(tree=T), "missing", id="tensor missing"),
        pytest.param(build({"a": entry(0, 1)}, b"x", tree=["l", [T, T]]), "named before", id="tensor named twice"),
        pytest.param(build(tree=["z", 1]), "unknown node", id="unknown node"),
        pytest.param(build(tree=["d", [["a"]]]), "unknown dict entry", id="half a dict entry"),
        pytest.param(build(tree=["d", [[1, ["j", 1]]]]), "unknown dict entry", id="number as key"),
        pytest.param(build({"a": entry(0, 9)}, b"12345678", tree=T), "exceed", id="offsets beyond the data"),
        pytest.param(build({"a": entry(0, 4), "b": entry(2, 6)}, b"123456", tree=T), "overlap", id="overlap"),
        pytest.param(build({"a": entry(0, 2), "b": entry(3, 4)}, b"1234", tree=T), "hole", id="hole"),
        pytest.param(build({"a": entry(0, 2)}, b"1234", tree=T), "follow the last", id="bytes left over"),
        pytest.param(
            build({"a": {**entry(0, 2), "data_offsets": [2, 0]}}, b"12", tree=T), "bad", id="offsets reversed"
        ),
        pytest.param(
            build({"a": {**entry(0, 2), "data_offsets": [-2, 0]}}, b"12", tree=T), "bad", id="negative offset"
        ),
        pytest.param(build({"a": {**entry(0, 2), "data_offsets": [0.0, 2]}}, b"12", tree=T), "bad", id="float offset"),
        pytest.param(
            build({"a": {**entry(0, 1), "data_offsets": [False, True]}}, b"1", tree=T), "bad", id="bool offset"
        ),
        pytest.param(build({"a": entry(0, 2, [-1, -2])}, b"12", tree=T), "bad shape", id="negative shape"),
        pytest.param(build({"a": entry(0, 2, [3])}, b"12", tree=T), "needs 3 bytes", id="shape over the data"),
        pytest.param(build({"a": entry(0, 0, [0, 2**70])}, b"", tree=T), "cannot have the shape", id="endless shape"),
        pytest.param(build({"a": entry(0, 0, [0] * 99)}, b"", tree=T), "bad shape", id="many dimensions"),
        pytest.param(build({"a": entry(0, 2, dtype="F8_E4M3")}, b"12", tree=T), "F8_E4M3", id="unknown dtype"),
        pytest.param(build({"a": []}, tree=T), "no description", id="tensor without description"),
        pytest.param(build({"a": entry(0, 2)}, b"12", tree=[*T, {"scalar": True}]), "no scalar", id="two as a scalar"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_with_the_reason(data, reason):
    with pytest.raises(WireError, match=reason):
        decode_frame(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=12), st.integers(0, 400))
def test_a_damaged_frame_decodes_or_raises_wire_error(garbage, position):
    frame = bytearray(encode_frame({"a": np.arange(4), "b": ["text", (1.5, None)]}, {"op": 1}))
    position %= len(frame)
    frame[position : position + len(garbage)] = garbage
    with contextlib.suppress(WireError):
        decode_frame(frame)
