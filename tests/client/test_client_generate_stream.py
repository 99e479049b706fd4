"""Streams of completions from a server without events of its own kind: polled, and each event handed out once."""

from typing import Any

import pytest
from builders.training_server import FAST_RETRY

from drydock.client import TrainingClient
from drydock.errors import RequestFailed, ServiceError
from drydock.wire import SamplingParams
from drydock.wire.frame import encode_frame
from drydock.wire.results import result_envelope

PARAMS = SamplingParams(max_tokens=4)
DONE: dict[str, Any] = {"status": "completed"}


def result(index: int, token: int) -> dict[str, Any]:
    item = {"text": "x", "token_ids": [token], "finish_reason": "stop"}
    return {"type": "result", "index": index, "result": item}


def failed(index: int) -> dict[str, Any]:
    return {"type": "error", "index": index, "error": "too long"}


async def collect(client: TrainingClient, count: int) -> dict[int, list[int]]:
    stream = client.generate_stream("j", [[1]] * count, PARAMS, deadline_s=10)
    return {index: generation.token_ids async for index, generation in stream}


@pytest.mark.parametrize("hosted", [True, False])
async def test_results_come_in_the_order_of_their_ends(server, hosted):
    enveloped = {**result(0, 0), "result": result_envelope(encode_frame(result(0, 5)["result"]))}
    server.streams = [[result(2, 7), enveloped, result(1, 6), {"type": "done", "completed": 3, "failed": 0}, DONE]]
    async with TrainingClient(server.url, retry=FAST_RETRY, hosted=hosted) as client:
        found = await collect(client, 3)
    assert list(found.items()) == [(2, [7]), (0, [5]), (1, [6])]


async def test_failed_prompts_are_named_after_the_others(server, client):
    server.streams = [[failed(0), result(1, 6), DONE]]
    stream = client.generate_stream("j", [[1], [2]], PARAMS, deadline_s=10)
    assert (await anext(stream))[0] == 1
    with pytest.raises(RequestFailed, match="generate-stream on job j: 1 of 2 prompts failed: prompt 0: too long"):
        await anext(stream)


async def test_only_open_prompts_are_sampled_again_after_a_lost_worker(server, client):
    lost = {"status": "failed", "error": "the worker died", "error_type": "WorkerLost"}
    server.streams = [[result(1, 6), lost], [result(0, 5), failed(1), lost], [result(0, 7), DONE]]
    assert await collect(client, 3) == {1: [6], 0: [5], 2: [7]}
    assert [len(body["prompts"]) for _, body in server.executed] == [3, 2, 1]


async def test_a_failed_stream_and_one_that_says_too_little_are_errors(server, client):
    server.streams = [[result(0, 5), {"status": "cancelled", "error": "by request"}]]
    with pytest.raises(RequestFailed, match="ended as cancelled: by request"):
        await collect(client, 2)
    server.streams = [[result(0, 5), DONE], [DONE]]
    with pytest.raises(ServiceError, match="without prompts"):
        await collect(client, 2)
    server.streams = [[result(7, 5), DONE]]
    with pytest.raises(ServiceError, match="unusable"):
        await collect(client, 2)
