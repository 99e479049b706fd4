"""The real cortex-training package reads what is written here, and the other way round."""

from typing import Any

import numpy as np
import pytest
from cortex_training import wire as cortex

from drydock.errors import WireError
from drydock.wire import decode_frame, encode_frame, parse_chunk, reassemble, split_request, split_result

torch = pytest.importorskip("torch")

BATCH: dict[str, Any] = {
    "args": (),
    "kwargs": {"input_ids": np.arange(6).reshape(2, 3), "use_cache": False, "nothing": None},
    "context": {
        "loss_mask": np.array([[True, False, True]]),
        "advantages": np.array([[0.5, -1.25, np.nan]], np.float32),
        "empty": np.zeros((0, 3), np.float64),
        "scalar": np.array(2.5, np.float32),
        "names": ["a", "ä", "\U0001f6a2"],
        "nested": [np.arange(3, dtype=np.int32), (np.ones(2, np.uint8), {"deep": np.array(7)})],
    },
    "processing": {"loss_fn": "grpo", "config": {"eps_clip": 3e-4, "c_clip": None}, "post": ["compute_logprobs"]},
}


def to_torch(value: Any) -> Any:
    match value:
        case np.ndarray():
            return torch.tensor(value)
        case dict():
            return {key: to_torch(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(to_torch(item) for item in value)
        case _:
            return value


def assert_equal(got: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert tuple(got.shape) == expected.shape
        assert np.asarray(got).dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(got), expected)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            assert_equal(got[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(got) is type(expected)
        for left, right in zip(got, expected, strict=True):
            assert_equal(left, right)
    else:
        assert got == expected


def test_frames_of_ours_are_read_there():
    frame = encode_frame(BATCH, {"response_options": {"format": "dssst1"}})
    assert_equal(cortex.loads(frame), BATCH)
    assert cortex.read_metadata(frame) == {"response_options": {"format": "dssst1"}}


def test_frames_of_theirs_are_read_here():
    frame = decode_frame(cortex.dumps(to_torch(BATCH), metadata={"router_replay": {"sampling_job_id": "j:sampling:0"}}))
    assert_equal(frame.value, BATCH)
    assert frame.metadata == {"router_replay": {"sampling_job_id": "j:sampling:0"}}


@pytest.mark.parametrize(
    "value",
    [np.arange(4), np.array(1.5), {"a": 1, "b": [True, None, "x"]}, [], {}, "text", 3, [1.5, float("inf")]],
    ids=repr,
)
def test_roots_of_every_kind_pass_both_ways(value):
    assert_equal(cortex.loads(encode_frame(value)), value)
    assert_equal(decode_frame(cortex.dumps(to_torch(value))).value, value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_dtypes_pass_both_ways(dtype):
    value = {"x": np.array([[0, 1], [1, 0]], dtype)}
    assert_equal(cortex.loads(encode_frame(value)), value)
    assert_equal(decode_frame(cortex.dumps(to_torch(value))).value, value)


def test_bfloat16_of_theirs_is_widened_exactly():
    values = torch.tensor([[0.0, -1.0, 3.140625], [1e-30, float("inf"), 65280.0]], dtype=torch.bfloat16)
    got = decode_frame(cortex.dumps({"x": values, "scalar": torch.tensor(-2.5, dtype=torch.bfloat16)})).value
    assert got["x"].dtype == np.float32
    np.testing.assert_array_equal(got["x"], values.float().numpy())
    assert got["scalar"].shape == ()
    assert got["scalar"] == -2.5


def test_their_silent_key_collision_is_refused_here():
    frame = cortex.dumps({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}})
    with pytest.raises(WireError, match=r"a\.b"):
        decode_frame(frame)


def test_frames_of_every_header_length_are_read_there():
    for size in range(0, 1400, 8):
        assert cortex.loads(encode_frame("x" * size)) == "x" * size


LARGE: dict[str, Any] = BATCH | {"context": {"logprobs": np.arange(20_000, dtype=np.float32).reshape(4, -1)}}


def test_their_request_chunks_join_here():
    frame = cortex.dumps(to_torch(LARGE))
    bodies = cortex.encode_byte_chunks(
        frame, max_bytes=30_000, kind="request", chunk_group_id="g", operation="fwd-bwd", force_chunk=True
    )
    chunks = [parse_chunk(body) for body in bodies]
    assert len(chunks) > 2
    assert {chunk.descriptor.chunk_group_id for chunk in chunks if chunk.descriptor} == {"g"}
    assert reassemble(reversed(chunks)) == frame


def test_our_request_chunks_join_there():
    frame = encode_frame(LARGE)
    for max_bytes, count in ((30_000, 4), (62_914_560, 1)):
        bodies = split_request(frame, operation="fwd-bwd", group_id="g", max_bytes=max_bytes)
        assert len(bodies) == count
        assert cortex.decode_byte_chunks(bodies, kind="request") == frame
        assert cortex.read_byte_chunk_metadata(bodies[0])


def test_result_chunks_join_both_ways():
    assert_equal(cortex.decode_result_chunks(split_result(encode_frame(LARGE), 30_000)), LARGE)
    theirs = cortex.encode_result_chunks(to_torch(LARGE), max_bytes=30_000)
    assert len(theirs) > 2
    assert_equal(decode_frame(reassemble(map(parse_chunk, theirs))).value, LARGE)
