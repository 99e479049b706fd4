"""What the client repeats, for how long, and what it gives up at once."""

import asyncio
import socket
import time

import pytest
from builders.training_server import FAST_RETRY, TrainingServer, losing_answers

from drydock.client import Refused, RetryPolicy, TrainingClient
from drydock.errors import DeadlineExceeded, RequestFailed, ServiceUnavailable
from drydock.wire import JobCreate, SamplingParams

PARAMS = SamplingParams(max_tokens=4)
ONE = {"results": [{"text": "x", "token_ids": [1], "finish_reason": "stop"}]}


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


async def test_a_wrong_address_is_named_within_seconds():
    started = time.monotonic()
    async with TrainingClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(ServiceUnavailable, match="list jobs: no connection to http://127"):
            await client.list_jobs()
    assert time.monotonic() - started < 6


async def test_a_service_that_answered_before_is_waited_for_and_sent_the_same_key():
    first = TrainingServer(held=True, results={"step": {"global_steps": 1}})
    second = TrainingServer(held=True, results={"step": {"global_steps": 2}})
    retry = RetryPolicy(attempts=2, first_s=0.01, unreachable_s=0.1)
    port = free_port()
    async with TrainingClient(f"http://127.0.0.1:{port}", retry=retry) as client:
        with first.serving(port):
            await client.step("j", deadline_s=5)
        stepping = asyncio.create_task(client.step("j", deadline_s=20))
        await asyncio.sleep(1.0)
        assert not stepping.done()
        with second.serving(port):
            assert (await stepping).global_steps == 2
    assert len(second.executed) == 1


async def test_a_service_that_stays_away_is_given_up_after_the_outage():
    server, port = TrainingServer(), free_port()
    retry = RetryPolicy(first_s=0.01, outage_s=0.3)
    async with TrainingClient(f"http://127.0.0.1:{port}", retry=retry) as client:
        with server.serving(port):
            await client.capacity()
        with pytest.raises(ServiceUnavailable, match="no connection"):
            await client.capacity()


async def test_a_starting_job_and_a_busy_service_are_asked_until_the_deadline(server, client):
    server.held, server.results = True, {"step": {"global_steps": 1}}
    starting = (409, {"message": "job j is initializing, not running yet: wait for it and try again"})
    server.faults = [starting] * 6 + [(429, {"message": "slower"})] * 6
    assert (await client.step("j", deadline_s=5)).global_steps == 1
    server.faults = [starting] * 1000
    with pytest.raises(DeadlineExceeded, match="not running yet"):
        await client.step("j", deadline_s=0.3)


async def test_a_500_that_names_its_error_is_not_repeated(server, client):
    server.faults = [(500, {"message": "the disk is full", "error_type": "StoreError"})]
    with pytest.raises(Refused, match="HTTP 500: the disk is full"):
        await client.step("j", deadline_s=5)
    assert len(server.seen) == 1


@pytest.mark.parametrize("error_type", ["ServiceRestarted", "WorkerLost"])
async def test_sampling_that_was_cut_off_is_asked_for_again_with_a_new_key(server, client, error_type):
    server.held, server.results = True, {"generate": ("cut off", error_type), "step": ("cut off", error_type)}
    server.heal_after = 2
    (generation,) = await client.generate("j", [[1]], PARAMS, deadline_s=5)
    assert generation.token_ids == [1]
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 3
    server.seen = []
    with pytest.raises(RequestFailed, match="cut off") as caught:
        await client.step("j", deadline_s=5)
    assert caught.value.error_type == error_type
    assert len(server.seen) == 1


async def test_sampling_whose_job_is_over_fails_with_what_cut_it_off(server, client):
    server.held, server.results = True, {"generate": ("the worker died of hunger", "WorkerLost")}
    server.faults = [None, (410, {"message": "job j is failed"})]
    with pytest.raises(RequestFailed, match="died of hunger"):
        await client.generate("j", [[1]], PARAMS, deadline_s=5)
    assert len(server.seen) == 2


async def test_a_batch_with_a_key_is_the_same_chunk_group(server, client):
    server.held, server.results = True, {"forward-backward": {"avg_loss": 0.0}}
    batch = {"kwargs": {"input_ids": [[1, 2]]}}
    for key in ("run-7/step-3", "run-7/step-3", "run-7/step-4", None, None):
        await client.forward_backward("j", batch, 5, idempotency_key=key)
    bodies = [seen.body for seen in server.seen]
    assert bodies[0] == bodies[1]
    assert len(set(bodies)) == 4


async def test_a_lost_create_is_sent_again_with_its_key(server):
    body = JobCreate.model_validate(
        {"sub_job_configs": [{"job_type": "training", "model_name": "m", "training_config": {}}]}
    )
    async with losing_answers(server.url, 1) as url, TrainingClient(url, retry=FAST_RETRY) as client:
        await client.create_job(body)
    assert len(server.seen) == 2
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 1
