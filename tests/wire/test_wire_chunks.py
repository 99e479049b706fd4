"""Chunks: any order joins to the same bytes, and no missing, doubled, foreign or changed chunk goes unnoticed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.errors import WireError
from drydock.wire import (
    Chunk,
    decode_frame,
    encode_frame,
    join_result,
    parse_chunk,
    read_result,
    read_result_event,
    reassemble,
    result_envelope,
    result_event,
    split_request,
    split_result,
)

FRAME = encode_frame({"x": np.arange(500, dtype=np.int32)})


def request_chunks(frame: bytes = FRAME, max_bytes: int = 900) -> list[Chunk]:
    bodies = split_request(frame, operation="fwd-bwd", group_id="g1", max_bytes=max_bytes)
    return [parse_chunk(body) for body in bodies]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(700, 12_000), st.randoms(use_true_random=False))
def test_chunks_in_any_order_join_to_the_frame(frame, max_bytes, random):
    for bodies in (
        split_request(frame, operation="generate", group_id="g", max_bytes=max_bytes),
        split_result(frame, max_bytes),
    ):
        assert all(len(body) <= max_bytes for body in bodies)
        random.shuffle(bodies)
        assert reassemble(map(parse_chunk, bodies)) == frame


def test_a_forced_envelope_wraps_a_frame_that_fits():
    (body,) = split_request(FRAME, operation="fwd-bwd", group_id="g1")
    descriptor = parse_chunk(body).descriptor
    assert descriptor is not None
    assert (descriptor.kind, descriptor.chunk_idx, descriptor.total_chunks) == ("request", 0, 1)
    assert (descriptor.chunk_group_id, descriptor.operation) == ("g1", "fwd-bwd")
    assert descriptor.frame_size_bytes == len(FRAME)
    assert set(decode_frame(body).metadata) == {"request_chunk"}


def test_without_force_a_frame_that_fits_travels_bare():
    (body,) = split_request(FRAME, operation="generate", group_id="g1", force=False)
    assert body == FRAME
    assert parse_chunk(body) == Chunk(FRAME, None)
    assert reassemble([parse_chunk(body)]) == FRAME


def test_result_chunks_name_no_group_and_no_operation():
    descriptor = decode_frame(split_result(FRAME)[0]).metadata["result_chunk"]
    assert set(descriptor) == {"chunk_idx", "total_chunks", "frame_sha256", "frame_size_bytes"}


def test_a_limit_below_one_byte_of_payload_is_refused():
    with pytest.raises(WireError, match="too small"):
        split_request(FRAME, operation="fwd-bwd", group_id="g1", max_bytes=200)


def test_tampering_is_detected():
    chunks = request_chunks()
    assert len(chunks) > 2
    first = chunks[0]
    assert first.descriptor is not None
    changed = replace(first, payload=bytes([first.payload[0] ^ 1]) + first.payload[1:])
    shorter = replace(first, payload=first.payload[:-1])
    foreign = request_chunks(encode_frame({"x": np.arange(500, dtype=np.int32) + 1}))
    other_group = replace(first, descriptor=replace(first.descriptor, chunk_group_id="g2"))
    for broken, reason in (
        ([], "no chunks"),
        (chunks[1:], "chunks are there"),
        ([*chunks, first], "came twice"),
        ([changed, *chunks[1:]], "sha256"),
        ([shorter, *chunks[1:]], "announce"),
        ([foreign[0], *chunks[1:]], "different frames"),
        ([other_group, *chunks[1:]], "different frames"),
        ([Chunk(FRAME, None), *chunks[1:]], "bare frame"),
        ([*chunks[1:], Chunk(FRAME, None)], "different frames"),
    ):
        with pytest.raises(WireError, match=reason):
            reassemble(broken)


@pytest.mark.parametrize(
    "change",
    [
        {"chunk_idx": 1},
        {"chunk_idx": -1},
        {"chunk_idx": "0"},
        {"total_chunks": 0},
        {"frame_sha256": None},
        {"frame_size_bytes": -1},
        {"chunk_group_id": None},
        {"chunk_group_id": ""},
        {"operation": 3},
    ],
)
def test_a_malformed_descriptor_is_refused(change):
    fields = {
        "chunk_idx": 0,
        "total_chunks": 1,
        "frame_sha256": "0" * 64,
        "frame_size_bytes": 1,
        "chunk_group_id": "g",
        "operation": "fwd-bwd",
    }
    payload = {"payload": np.zeros(1, np.uint8)}
    assert parse_chunk(encode_frame(payload, {"request_chunk": fields})).payload == b"\0"
    with pytest.raises(WireError):
        parse_chunk(encode_frame(payload, {"request_chunk": fields | change}))


@pytest.mark.parametrize("value", [{"payload": "text"}, {}, {"payload": np.zeros(2, np.float32)}])
def test_a_chunk_without_bytes_is_refused(value):
    fields = {"chunk_idx": 0, "total_chunks": 1, "frame_sha256": "0" * 64, "frame_size_bytes": 1}
    with pytest.raises(WireError, match="no byte payload"):
        parse_chunk(encode_frame(value, {"result_chunk": fields}))


def test_results_travel_plain_in_an_envelope_and_in_events():
    value = {"avg_loss": 0.5, "logprobs": np.ones((40, 30), np.float32)}
    frame = encode_frame(value)
    assert read_result({"avg_loss": 0.5}) == {"avg_loss": 0.5}
    assert read_result(None) is None
    np.testing.assert_array_equal(read_result(result_envelope(frame))["logprobs"], value["logprobs"])
    events = [result_event(chunk) for chunk in split_result(frame, 2000)]
    assert len(events) > 1
    joined = join_result(map(read_result_event, reversed(events)))
    np.testing.assert_array_equal(joined["logprobs"], value["logprobs"])


def test_metrics_beside_an_envelope_win_over_those_inside():
    envelope = result_envelope(encode_frame({"metrics": {"a": 1, "b": 1}, "x": np.ones(1)}))
    assert read_result(envelope | {"metrics": {"b": 2}})["metrics"] == {"a": 1, "b": 2}


def test_an_event_changed_on_the_way_is_refused():
    event = result_event(split_result(FRAME)[0])
    with pytest.raises(WireError, match="sha256"):
        read_result_event(event | {"payload_b64": result_event(FRAME)["payload_b64"]})
    with pytest.raises(WireError, match="base64"):
        read_result_event({"payload_b64": "no base64!"})
    with pytest.raises(WireError, match="base64"):
        read_result_event({})
    with pytest.raises(WireError, match="wire format"):
        read_result({"wire_format": "DSSST9", "encoding": "base64", "payload_b64": ""})
