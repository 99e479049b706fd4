"""Whatever bytes come, the readers answer with a value or with WireError, quickly and in bounded memory."""

import contextlib
import json
import struct
import time
import tracemalloc

import numpy as np
import pytest
from builders.broken_frames import batch, broken_frames, chunk_runs, odd_values
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.errors import WireError
from drydock.wire.blob import MAX_CONTAINERS, MAX_TENSORS
from drydock.wire.chunks import MAX_CHUNKS, parse_chunk, reassemble
from drydock.wire.frame import decode_frame, encode_frame

GOOD = encode_frame(batch(), {"response_options": {"format": "dssst1"}})
BOUNDED = settings(max_examples=150, deadline=2000, derandomize=True)
LONG = settings(max_examples=5000, deadline=5000)


def read(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode_frame(data)
    with contextlib.suppress(WireError):
        parse_chunk(data)


@given(broken_frames(GOOD))
@BOUNDED
def test_broken_frames(data: bytes):
    read(data)


@given(st.binary(max_size=400))
@BOUNDED
def test_any_bytes(data: bytes):
    read(data)
    read(struct.pack("<Q", len(data)) + data)


@given(odd_values())
@BOUNDED
def test_odd_values_come_back_or_are_refused(value: dict):
    with contextlib.suppress(WireError):
        frame = encode_frame(value)
        assert decode_frame(frame).value.keys() == value.keys()


@given(chunk_runs())
@BOUNDED
def test_mixed_up_chunks(bodies: list[bytes]):
    with contextlib.suppress(WireError):
        assert decode_frame(reassemble([parse_chunk(body) for body in bodies]))


@pytest.mark.slow
@given(broken_frames(GOOD), chunk_runs())
@LONG
def test_broken_frames_and_chunks_for_long(data: bytes, bodies: list[bytes]):
    read(data)
    with contextlib.suppress(WireError):
        reassemble([parse_chunk(body) for body in bodies])


def header_of(entries: dict) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "entries",
    [
        {"t": {"dtype": "F32", "shape": [2**62] * 20_000, "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64]}},
        {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(MAX_TENSORS + 1)},
        {"__metadata__": {"dss": '{"v":"DSSST1","tree":' + "[" * 500_000}},
        {"__metadata__": {"dss": '{"v":"DSSST1","tree":["l",[' + '["l",[],' * 200_000}},
    ],
    ids=["huge shape", "many dimensions", "huge offsets", "many tensors", "deep JSON", "deep tree"],
)
def test_descriptions_that_promise_too_much_cost_little(entries: dict):
    data = header_of(entries)
    tracemalloc.start()
    started = time.monotonic()
    with pytest.raises(WireError):
        decode_frame(data)
    assert time.monotonic() - started < 5
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30 * len(data) + (16 << 20)


def test_a_description_of_too_many_chunks_is_refused_before_anything_is_kept():
    fields = {
        "chunk_idx": 0,
        "total_chunks": MAX_CHUNKS + 1,
        "frame_sha256": "0" * 64,
        "frame_size_bytes": 1,
        "chunk_group_id": "g",
        "operation": "fwd-bwd",
    }
    payload = {"payload": np.zeros(1, np.uint8)}
    with pytest.raises(WireError, match="total_chunks"):
        parse_chunk(encode_frame(payload, {"request_chunk": fields}))
    for group in ("g" * 129, "a\nb"):
        with pytest.raises(WireError, match="chunk_group_id"):
            parse_chunk(
                encode_frame(payload, {"request_chunk": {**fields, "total_chunks": 1, "chunk_group_id": group}})
            )


def test_a_body_of_brackets_only_is_refused_before_it_is_read():
    body = b'{"a":[' + b"[]," * (MAX_CONTAINERS + 1) + b"[]]}"
    started = time.monotonic()
    with pytest.raises(WireError, match="brackets"):
        decode_frame(struct.pack("<Q", len(body)) + body)
    assert time.monotonic() - started < 2
