"""Data-plane calls over every legal way of answering them."""

import asyncio
import socket

import numpy as np
import pytest
from builders.training_server import FAST_RETRY, losing_answers

from drydock.client import Refused, TrainingClient
from drydock.errors import DeadlineExceeded, RequestFailed, ServiceError, ServiceUnavailable, UserError
from drydock.wire import SamplingParams

COMPACT = {
    "results": [
        {"text": "ab", "token_ids": [7, 8], "logprobs": [-0.5, -1.5], "finish_reason": "stop", "policy_version": 3},
        {"text": "", "token_ids": [], "logprobs": [], "finish_reason": "abort", "policy_version": 3},
    ]
}
HOSTED = {
    "results": [
        {"text": "ab", "token_ids": [7, 8], "logprobs": [{"7": {"logprob": -0.5}, "9": {"logprob": -2}}, {"8": -1.5}]},
        {"text": "", "token_ids": [], "logprobs": [], "finish_reason": "length"},
    ]
}
PARAMS = SamplingParams(max_tokens=4, temperature=0.7, logprobs=0, stop=["</s>"])
LARGE = {"avg_loss": 0.5, "post_process_outputs": {"logprobs": np.arange(4000, dtype=np.float32).reshape(4, -1)}}


async def test_held_answers_cost_one_request_each(server, client):
    server.held, server.results = True, {"generate": COMPACT}
    first, second = await client.generate("j", [[1, 2], "text"], PARAMS, routing_key="k", deadline_s=5)
    assert (first.text, first.token_ids, first.logprobs) == ("ab", [7, 8], [-0.5, -1.5])
    assert (first.finish_reason, first.policy_version, second.finish_reason) == ("stop", 3, "abort")
    assert server.paths() == ["POST /j/generate"]
    assert server.seen[0].headers["prefer"] == "wait=4"
    assert server.seen[0].headers["authorization"] == "Bearer secret-token"
    body = server.executed[0][1]
    assert body["prompts"][0].dtype == np.int32
    assert body["prompts"][0].tolist() == [1, 2]
    assert body["prompts"][1] == "text"
    assert body["routing_key"] == "k"
    assert body["sampling_params"] == {
        "max_tokens": 4,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "stop": ["</s>"],
        "logprobs": 0,
        "compact_logprobs": True,
    }


@pytest.mark.parametrize("delivery", ["plain", "envelope", "events"])
async def test_a_server_that_holds_nothing_is_polled(server, client, delivery):
    server.delivery, server.polls, server.results = delivery, 1, {"generate": HOSTED}
    first, second = await client.generate("j", [[1], [2]], PARAMS, deadline_s=10)
    assert (first.token_ids, first.logprobs, first.policy_version) == ([7, 8], [-0.5, -1.5], None)
    assert second.logprobs == []
    assert server.paths()[:3] == ["POST /j/generate", "GET /j/requests/r:0", "GET /j/requests/r:0"]


async def test_a_large_result_comes_in_chunks_over_repeatable_pages(server, client):
    server.delivery, server.polls, server.results = "events", 0, {"forward-backward": LARGE}
    server.faults = [None, None, None, (503, {}), None]
    result = await client.forward_backward("j", {"kwargs": {"input_ids": [[1, 2]]}}, deadline_s=10)
    np.testing.assert_array_equal(result.post_process_outputs["logprobs"], LARGE["post_process_outputs"]["logprobs"])
    cursors = [seen.query.get("cursor") for seen in server.seen[1:]]
    assert cursors[:4] == [None, "2", "4", "4"]
    assert len(cursors) == len(set(cursors)) + 1


async def test_logprobs_that_do_not_cover_the_tokens_are_an_error(server, client):
    server.held = True
    for logprobs in ([-0.5], [{"7": -0.5}, {"9": -1.0}]):
        server.results = {"generate": {"results": [{"text": "", "token_ids": [7, 8], "logprobs": logprobs}]}}
        with pytest.raises(ServiceError, match=r"generate on job j: .*log-prob"):
            await client.generate("j", [[1]], PARAMS, deadline_s=5)
    assert (await client.generate("j", [[1]], SamplingParams(), deadline_s=5))[0].logprobs == []


async def test_a_result_too_few_is_an_error(server, client):
    server.held, server.results = True, {"generate": COMPACT}
    with pytest.raises(ServiceError, match="3 prompts"):
        await client.generate("j", [[1], [2], [3]], PARAMS, deadline_s=5)


async def test_forward_backward_sends_arrays_in_chunks(server):
    server.held, server.results = True, {"forward-backward": {"avg_loss": 1.5, "metrics": {"approx_kl": 0.0}}}
    batch = {
        "kwargs": {"input_ids": np.arange(6000).reshape(2, -1), "attention_mask": [[1, 1], [1, 0]]},
        "context": {"advantages": [[0.5, -0.5]], "loss_mask": [[True, False]], "old": np.ones(2, np.float64)},
        "processing": {"loss_fn": "grpo", "config": {"eps_clip": 0.2}},
    }
    async with TrainingClient(server.url, retry=FAST_RETRY, max_body_bytes=20_000) as client:
        result = await client.forward_backward("j", batch, deadline_s=5)
    assert (result.avg_loss, result.metrics, result.post_process_outputs) == (1.5, {"approx_kl": 0.0}, {})
    assert len(server.seen) > 2
    sent = server.executed[0][1]
    assert sent["args"] == ()
    assert sent["processing"] == batch["processing"]
    np.testing.assert_array_equal(sent["kwargs"]["input_ids"], batch["kwargs"]["input_ids"])
    dtypes = {name: str(array.dtype) for block in ("kwargs", "context") for name, array in sent[block].items()}
    assert dtypes == {
        "input_ids": "int64",
        "attention_mask": "int64",
        "advantages": "float32",
        "loss_mask": "bool",
        "old": "float64",
    }


async def test_a_small_batch_is_enveloped_too(server, client):
    server.held, server.results = True, {"forward-backward": {"avg_loss": 0.0}}
    await client.forward_backward("j", {"kwargs": {"input_ids": [[1]]}}, deadline_s=5)
    assert len(server.seen) == 1
    assert server.executed[0][0] == "forward-backward"


async def test_a_ragged_batch_is_refused_by_name(server, client):
    with pytest.raises(UserError, match=r"kwargs\.input_ids is ragged"):
        await client.forward_backward("j", {"kwargs": {"input_ids": [[1], [1, 2]]}}, deadline_s=5)
    assert server.seen == []


@pytest.mark.parametrize(
    "body",
    [
        {"detail": {"code": "chunk_group_restart_required", "expected_start_chunk": 0}},
        {"code": "517604", "message": 'ZMD returned 409: {"detail":{"code":"chunk_group_restart_required"}}'},
    ],
    ids=["plain", "nested in a message"],
)
async def test_a_lost_chunk_group_is_sent_again_once(server, body):
    server.held, server.results = True, {"forward-backward": {"avg_loss": 0.0}}
    batch = {"kwargs": {"input_ids": np.arange(6000).reshape(2, -1)}}
    async with TrainingClient(server.url, retry=FAST_RETRY, max_body_bytes=40_000) as client:
        server.faults = [None, (409, body)]
        await client.forward_backward("j", batch, deadline_s=5)
        bodies = [seen.body for seen in server.seen]
        assert bodies[:2] == bodies[2:4]
        assert len(server.executed) == 1
        server.faults, server.seen = [(409, body), (409, body)], []
        with pytest.raises(Refused, match="chunk_group_restart_required"):
            await client.forward_backward("j", batch, deadline_s=5)
        assert len(server.seen) == 2


async def test_other_conflicts_are_not_repeated(server, client):
    server.faults = [(409, {"detail": {"code": "chunk_group_conflict", "message": "another payload"}})]
    with pytest.raises(Refused, match="chunk_group_conflict"):
        await client.forward_backward("j", {"kwargs": {"input_ids": [[1]]}}, deadline_s=5)
    assert len(server.seen) == 1


async def test_step_save_and_weight_sync(server, client):
    server.held = True
    server.results = {
        "step": {"global_steps": 2, "last_lr": [1e-3, 2e-3], "metrics": {"grad_norm": 0.5}},
        "save": {"stage_path": "s3://b/checkpoints/cp_42/global_step2/", "checkpoint_tag": "global_step2"},
        "weight-sync": {"policy_version": 2, "fingerprint": "ab", "seconds": 0.1},
    }
    step = await client.step("j", learning_rate=1e-3, deadline_s=5)
    assert (step.global_steps, step.last_lr, step.metrics) == (2, 1e-3, {"grad_norm": 0.5})
    await client.step("j", deadline_s=5)
    assert [value for kind, value in server.executed if kind == "step"] == [{"learning_rate": 1e-3}, {}]
    assert (await client.save("j", checkpoint_type="weights-only", deadline_s=5)).checkpoint_id == "cp_42"
    sync = await client.weight_sync("j", "j:training:0", ["j:sampling:0"], deadline_s=5)
    assert (sync.policy_version, sync.fingerprint) == (2, "ab")
    kind, value = server.executed[-1]
    assert kind == "weight-sync"
    assert (value["sub_job_id"], value["sub_job_type"]) == ("j:training:0", "training")
    assert value["payload"] == {"source_sub_job_id": "j:training:0", "target_sub_job_ids": ["j:sampling:0"]}


async def test_a_sync_that_is_not_confirmed_is_followed_by_a_cache_reset(server, client):
    server.held = True
    sync = await client.weight_sync("j", "j:training:0", ["j:sampling:0"], deadline_s=5)
    assert (sync.policy_version, sync.fingerprint) == (None, None)
    assert [kind for kind, _ in server.executed] == ["weight-sync", "reset-prefix-cache"]


async def test_a_failed_request_carries_the_servers_error(server, client):
    server.held, server.results = True, {"step": "no gradients since the last step"}
    with pytest.raises(RequestFailed, match=r"step on job j: request r:0 ended as failed: no gradients"):
        await client.step("j", deadline_s=5)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_passing_faults_are_retried_with_one_idempotency_key(server, client, status):
    server.held, server.results = True, {"step": {"global_steps": 1}}
    server.faults = [(status, {"message": "later"}), (status, "<html>later</html>")]
    assert (await client.step("j", deadline_s=5)).global_steps == 1
    keys = [seen.headers["idempotency-key"] for seen in server.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    await client.step("j", deadline_s=5)
    assert server.seen[-1].headers["idempotency-key"] != keys[0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 501])
async def test_refusals_fail_at_once_and_name_call_job_and_reason(server, client, status):
    server.faults = [(status, {"detail": "the reason, told to secret-token"})]
    with pytest.raises(Refused, match=rf"generate on job j: HTTP {status}: the reason") as caught:
        await client.generate("j", [[1]], PARAMS, deadline_s=5)
    assert caught.value.status == status
    assert len(server.seen) == 1
    assert "secret" not in str(caught.value)


async def test_faults_without_end_stop_after_the_attempts(server, client):
    server.faults = [(503, {"message": "draining"})] * 50
    with pytest.raises(ServiceUnavailable, match=r"step on job j: HTTP 503: draining, after 4 attempt"):
        await client.step("j", deadline_s=5)
    assert len(server.seen) == 4


async def test_a_server_that_never_answers_meets_the_deadline(server, client):
    server.faults = [(500, {"message": "first this"}), "hang"]
    with pytest.raises(DeadlineExceeded, match=r"step on job j after 0\.3 s: HTTP 500: first this"):
        await client.step("j", deadline_s=0.3)


async def test_a_request_that_never_ends_meets_the_deadline(server, client):
    server.polls = 10**6
    with pytest.raises(DeadlineExceeded, match="generate on job j after"):
        await client.generate("j", [[1]], PARAMS, deadline_s=0.7)
    assert len(server.seen) <= 4


async def test_nobody_listening_is_named_with_the_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with TrainingClient(f"http://user:secret-token@127.0.0.1:{port}", retry=FAST_RETRY) as client:
            with pytest.raises(ServiceUnavailable, match=f"step on job j: no connection to http://127.0.0.1:{port}"):
                await client.step("j", deadline_s=5)
            assert "secret" not in repr(client)


async def test_a_lost_answer_is_asked_for_again_with_the_same_key(server):
    server.held, server.results = True, {"step": {"global_steps": 1}}
    async with losing_answers(server.url, 1) as url, TrainingClient(url, retry=FAST_RETRY) as client:
        await client.step("j", deadline_s=5)
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 1
    assert len(server.seen) == 2


async def test_a_step_is_not_sent_twice_to_a_server_without_idempotency(server):
    server.results = {"step": {"global_steps": 1}}
    async with losing_answers(server.url, 1) as url, TrainingClient(url, retry=FAST_RETRY, hosted=True) as client:
        with pytest.raises(ServiceUnavailable, match=r"lost connection.*it may have taken effect"):
            await client.step("j", deadline_s=5)
    assert [kind for kind, _ in server.executed] == ["step"]


async def test_the_hosted_service_is_not_sent_what_only_ours_understands(server):
    server.held, server.results = True, {"generate": HOSTED}
    async with TrainingClient(server.url, token="pat", hosted=True) as client:
        await client.generate("j", [[1], [2]], PARAMS, deadline_s=5)
    assert "compact_logprobs" not in server.executed[0][1]["sampling_params"]
    assert server.seen[0].headers["x-snowflake-authorization-token-type"] == "PROGRAMMATIC_ACCESS_TOKEN"


async def test_calls_share_kept_connections(server, client):
    server.held, server.results = True, {"generate": {"results": COMPACT["results"][:1]}}
    for _ in range(20):
        await client.generate("j", [[1]], PARAMS, deadline_s=5)
    assert len({seen.peer for seen in server.seen}) == 1
    await asyncio.gather(*(client.generate("j", [[1]], PARAMS, deadline_s=5) for _ in range(64)))
    assert len(server.seen) == 84


async def test_ids_beyond_32_bits_are_sent_whole(server, client):
    server.held, server.results = True, {"generate": {"results": COMPACT["results"][:1]}}
    await client.generate("j", [[2**40]], PARAMS, deadline_s=5)
    assert server.executed[0][1]["prompts"][0].tolist() == [2**40]
