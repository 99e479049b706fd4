"""Frames that someone broke on purpose, as hypothesis strategies, and what each of them was before."""

import json
import struct
from typing import Any

import numpy as np
from builders.service_api import sft_batch
from hypothesis import strategies as st

from drydock.wire.chunks import split_request
from drydock.wire.frame import encode_frame

GROUP = "00000000-0000-4000-8000-000000000000"


def batch(rows: int = 2, width: int = 6) -> dict[str, Any]:
    """A small batch that a trainer of 400 tokens takes."""
    return sft_batch(np.arange(5, 5 + rows * width).reshape(rows, width))


def with_header(frame: bytes, change: dict[str, Any]) -> bytes:
    """The frame with keys of its header replaced."""
    (length,) = struct.unpack_from("<Q", frame)
    header = {**json.loads(frame[8 : 8 + length]), **change}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + frame[8 + length :]


_numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), st.text(max_size=5))
_shapes = st.lists(st.one_of(st.integers(0, 2**63), _numbers), max_size=70)
_entries = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["I64", "F32", "BF16", "BOOL", "F128", 3]), "shape": _shapes, "data_offsets": _shapes}
)
_nodes = st.recursive(
    st.one_of(st.just(["j", float("nan")]), st.just(["t", "kwargs.input_ids"]), st.just(["t", "x", {"scalar": True}])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: ["l", items]),
        st.lists(inner, max_size=3).map(lambda items: ["u", items]),
        st.lists(st.tuples(st.text(max_size=3), inner).map(list), max_size=3).map(lambda pairs: ["d", pairs]),
        st.tuples(st.text(max_size=2), inner).map(list),
    ),
    max_leaves=12,
)


@st.composite
def broken_frames(draw: st.DrawFn, frame: bytes) -> bytes:
    """`frame`, broken in one way."""
    way = draw(st.integers(0, 9))
    if way == 0:
        return frame[: draw(st.integers(0, len(frame)))]
    if way == 1:
        length = draw(st.sampled_from([0, 7, 2**26, 2**26 + 1, 2**40, 2**63, 2**64 - 1, len(frame)]))
        return struct.pack("<Q", length) + frame[8:]
    if way == 2:
        place = draw(st.integers(0, len(frame) - 1))
        return frame[:place] + bytes([draw(st.integers(0, 255))]) + frame[place + 1 :]
    if way == 3:
        return draw(st.sampled_from([b"\x80\x02", b"\x80\x05\x95", b"PK\x03\x04", b"\x93NUMPY", b"\x1f\x8b"])) + frame
    if way == 4:
        return with_header(frame, {"kwargs.input_ids": draw(_entries)})
    if way == 5:
        tree = json.dumps({"v": "DSSST1", "tree": draw(_nodes)})
        return with_header(frame, {"__metadata__": {"dss": tree}})
    if way == 6:
        return with_header(frame, {"__metadata__": draw(st.sampled_from([None, [], {}, {"dss": 3}, {"dss": "{"}]))})
    if way == 7:
        depth = draw(st.integers(100, 100_000))
        return with_header(frame, {"__metadata__": {"dss": '{"v":"DSSST1","tree":' + '["l",[' * depth}})
    if way == 8:
        twice = {"a.b": np.ones(2), "a": {"c": np.ones(2)}}
        return encode_frame(twice).replace(b"a.c", b"a.b")
    return frame + draw(st.binary(min_size=1, max_size=20))


@st.composite
def odd_values(draw: st.DrawFn) -> dict[str, Any]:
    """A batch whose frame is whole and whose content is odd."""
    value = batch(draw(st.integers(1, 3)), draw(st.integers(1, 8)))
    block = draw(st.sampled_from(["kwargs", "context", "processing"]))
    key = draw(st.sampled_from([*value[block], "labels", "advantages", "unknown", "\ud800"]))
    odd = st.sampled_from(
        [
            None,
            np.full((2, 6), np.nan),
            np.full((2, 6), np.inf, np.float32),
            np.full((2, 6), 2**62),
            np.zeros((0, 0)),
            np.zeros((2, 6, 2)),
            np.array(3),
            np.zeros((2, 6), bool),
            float("nan"),
            -1,
            "text",
            [[1, 2], [3]],
            {"a": {"b": [None]}},
        ]
    )
    return {**value, block: {**value[block], key: draw(odd)}}


@st.composite
def chunk_runs(draw: st.DrawFn) -> list[bytes]:
    """POST bodies of one or two uploads, mixed up: repeated, left out, out of order, with changed descriptions."""
    first = split_request(encode_frame(batch(4, 200)), operation="fwd-bwd", group_id=GROUP, max_bytes=9_000)
    second = split_request(encode_frame(batch(3, 190)), operation="fwd-bwd", group_id=GROUP, max_bytes=9_000)
    bodies = [*first, *second]
    order = draw(st.lists(st.integers(0, len(bodies) - 1), min_size=1, max_size=8))
    group = draw(st.uuids()).hex[:32]
    renamed = [bodies[index].replace(GROUP.encode(), f"{group:>36}".replace(" ", "0").encode()) for index in order]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(renamed) - 1))
        swap = draw(
            st.sampled_from(
                [
                    (b'\\"total_chunks\\": 2', b'\\"total_chunks\\": 9999999999999999'),
                    (b'\\"chunk_idx\\": 0', b'\\"chunk_idx\\": -1'),
                    (b'\\"frame_sha256\\": \\"', b'\\"frame_sha256\\": \\"0'),
                    (b'\\"frame_size_bytes\\": ', b'\\"frame_size_bytes\\": 1'),
                    (b'\\"request_chunk\\"', b'\\"result_chunk\\"'),
                ]
            )
        )
        renamed[place] = _replaced(renamed[place], *swap)
    return renamed


def _replaced(body: bytes, old: bytes, new: bytes) -> bytes:
    """The body with a text of its header replaced, its header length kept true."""
    (length,) = struct.unpack_from("<Q", body)
    header = body[8 : 8 + length].rstrip(b" ").replace(old, new)
    return struct.pack("<Q", len(header)) + header + body[8 + length :]
