import asyncio
import time

import httpx
import numpy as np
import psutil
import pytest
from builders.service_api import HELD, Api, chunks_of, sampling_config, sft_batch

from drydock.service.embedded import EmbeddedService
from drydock.wire.frame import encode_frame

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = [5, 6, 7, 8]


def asked(max_tokens: int = 4, **params: object) -> dict:
    return {"max_tokens": max_tokens, "ignore_eos": True, "temperature": 0.0, **params}


async def test_one_result_per_prompt_in_order_for_ids_and_text(api: Api, job: str):
    body = {"prompts": [PROMPT, "write the word", PROMPT], "sampling_params": asked(logprobs=0)}
    results = (await api.result(f"/{job}/generate", json=body))["results"]
    assert len(results) == 3
    assert results[0] == results[2] != results[1]
    for result in results:
        assert len(result["token_ids"]) == 4
        assert result["finish_reason"] == "length"
        assert isinstance(result["policy_version"], int)
        for token, entry in zip(result["token_ids"], result["logprobs"], strict=True):
            assert entry == {str(token): {"logprob": entry[str(token)]["logprob"]}}
            assert entry[str(token)]["logprob"] <= 0
    body["sampling_params"] = asked(logprobs=0, compact_logprobs=True)
    compact = (await api.result(f"/{job}/generate", json=body))["results"][0]
    assert compact["logprobs"] == [next(iter(entry.values()))["logprob"] for entry in results[0]["logprobs"]]
    body["sampling_params"] = [asked(1), None, asked(3)]
    sizes = [len(r["token_ids"]) for r in (await api.result(f"/{job}/generate", json=body))["results"]]
    assert (sizes[0], sizes[2]) == (1, 3)


async def test_a_frame_with_arrays_is_the_same_as_json_and_without_prefer_it_is_polled(api: Api, job: str):
    frame = encode_frame({"prompts": [np.array(PROMPT, np.int32)], "sampling_params": asked(), "strict": True})
    accepted = await api.post(f"/{job}/generate", content=frame)
    assert set(accepted) == {"request_id", "job_id"}
    state = await api.poll(job, accepted["request_id"])
    assert state["status"] == "completed"
    assert not state.get("next_cursor")
    held = await api.result(f"/{job}/generate", json={"prompts": [PROMPT], "sampling_params": asked()})
    assert state["result"] == held
    assert await api.poll(job, accepted["request_id"]) == state


async def test_prefer_wait_is_a_limit_not_a_promise(api: Api, job: str):
    body = {"prompts": [PROMPT], "sampling_params": asked(1500)}
    started = time.monotonic()
    answer = await api.call("POST", f"/{job}/generate", json=body, headers={"Prefer": "respond-async, wait=0.1"})
    assert time.monotonic() - started < 1.0
    assert answer.headers["preference-applied"] == "wait=0.1"
    state = answer.json()
    assert state["status"] == "running"
    request_id = state["request_id"]
    cancelled = await api.operation(job, "cancel-request", payload={"request_id": request_id})
    assert cancelled == {"request_id": request_id, "status": "cancelled", "cancelled": True}
    assert (await api.poll(job, request_id))["status"] == "cancelled"


async def test_an_idempotency_key_samples_once(api: Api, job: str):
    body = {"prompts": [PROMPT], "sampling_params": asked(8, temperature=1.0)}
    headers = {**HELD, "Idempotency-Key": "one sample"}
    states = [await api.post(f"/{job}/generate", json=body, headers=headers) for _ in range(2)]
    assert states[0] == states[1]


async def test_a_caller_that_hangs_up_frees_the_sampler(api: Api, job: str, service: EmbeddedService):
    body = {"prompts": [PROMPT], "sampling_params": asked(1900)}
    async with Api.of(service) as leaving:
        with pytest.raises(httpx.TimeoutException):
            await leaving.call("POST", f"/{job}/generate", json=body, headers=HELD, timeout=0.2)
    await asyncio.sleep(0.1)
    started = time.monotonic()
    await api.operation(job, "reset-prefix-cache", sub_job_type="sampling", payload={"drain": True, "timeout_s": 30})
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "prompts"),
        ({"prompts": []}, "prompts"),
        ({"prompts": [[]]}, "prompts.0"),
        ({"prompts": [[1, "x"]]}, "prompts.0"),
        ({"prompts": [[1] * 2048]}, "max_seq_len"),
        ({"prompts": [[1]], "sampling_params": {"temperature": -1}}, "temperature"),
        ({"prompts": [[1]], "sampling_params": {"max_token": 4}}, "max_token"),
        ({"prompts": [[1]], "sampling_params": {"logprobs": 21}}, "logprobs"),
        ({"prompts": [[1]], "sampling_params": [{}, {}]}, "sampling_params"),
    ],
)
async def test_bad_calls_are_refused_by_field(api: Api, job: str, body: dict, named: str):
    answer = await api.call("POST", f"/{job}/generate", json=body)
    assert answer.status_code == 422
    assert named in answer.json()["message"]


async def test_a_prompt_the_engine_refuses_fails_its_request_only(api: Api, job: str):
    good = {"prompts": [PROMPT], "sampling_params": asked(50)}
    other = asyncio.create_task(api.result(f"/{job}/generate", json=good))
    too_long = "grep " * 4000
    state = await api.post(f"/{job}/generate", json={"prompts": [PROMPT, too_long]}, headers=HELD)
    assert (state["status"], state["blame"]) == ("failed", "user")
    assert "max_seq_len" in state["error"]
    assert len((await other)["results"][0]["token_ids"]) == 50


async def test_weight_sync_changes_the_policy_and_proves_it(api: Api, job: str, service: EmbeddedService):
    async def sync() -> dict:
        payload = {"source_sub_job_id": f"{job}:training:0", "target_sub_job_ids": [f"{job}:sampling:0"]}
        return await api.result(f"/{job}/operation", json={"operation_type": "weight-sync", "payload": payload})

    async def sample() -> dict:
        body = {"prompts": [PROMPT], "sampling_params": asked(6, logprobs=0, compact_logprobs=True)}
        return (await api.result(f"/{job}/generate", json=body))["results"][0]

    first, before = await sync(), await sample()
    assert before["policy_version"] == first["policy_version"]
    for _ in range(3):
        [chunk] = chunks_of(sft_batch(np.array([[*PROMPT, 60, 61, 62, 63]])))
        await api.result(f"/{job}/forward-backward", content=chunk)
        stepped = await api.result(f"/{job}/step", json={"learning_rate": 0.02})
    running = asyncio.create_task(
        api.result(f"/{job}/generate", json={"prompts": [PROMPT], "sampling_params": asked(200)})
    )
    await asyncio.sleep(0.05)
    second = await sync()
    assert second["policy_version"] == stepped["global_steps"] == first["policy_version"] + 3
    assert second["fingerprint"] != first["fingerprint"]
    assert second["targets"] == {
        f"{job}:sampling:0": {"policy_version": second["policy_version"], "fingerprint": second["fingerprint"]}
    }
    assert (await running)["results"][0]["policy_version"] == first["policy_version"]
    after = await sample()
    assert after["policy_version"] == second["policy_version"]
    assert after["logprobs"] != before["logprobs"]

    [chunk] = chunks_of(sft_batch(np.array([PROMPT + after["token_ids"]]), post=["compute_logprobs"]))
    trained = await api.result(f"/{job}/forward-backward", content=chunk)
    await api.result(f"/{job}/step", json={"learning_rate": 0.0})
    ours = trained["post_process_outputs"]["logprobs"][0][len(PROMPT) - 1 : -1]
    np.testing.assert_allclose(after["logprobs"], ours, atol=1e-4)


async def test_weight_sync_between_the_wrong_sub_jobs_is_refused(api: Api, job: str):
    trainer, sampler = f"{job}:training:0", f"{job}:sampling:0"
    for payload, status, named in (
        ({"source_sub_job_id": sampler, "target_sub_job_ids": [sampler]}, 422, "source_sub_job_id"),
        ({"source_sub_job_id": trainer, "target_sub_job_ids": [trainer]}, 422, "target_sub_job_ids"),
        ({"source_sub_job_id": trainer, "target_sub_job_ids": []}, 422, "target_sub_job_ids"),
        ({"source_sub_job_id": trainer}, 422, "target_sub_job_ids"),
        ({"source_sub_job_id": trainer, "target_sub_job_ids": [sampler], "weight_format": "lora"}, 422, "lora"),
        ({"source_sub_job_id": trainer, "target_sub_job_ids": [sampler], "weight_format": "gguf"}, 501, "gguf"),
    ):
        answer = await api.call("POST", f"/{job}/operation", json={"operation_type": "weight-sync", "payload": payload})
        assert answer.status_code == status, answer.text
        assert named in answer.json()["message"]


async def test_a_killed_sampler_fails_its_requests_and_its_job_by_name(
    api: Api, service: EmbeddedService, job: str, model: str
):
    server = psutil.Process(service.pid)
    before = {child.pid for child in server.children(recursive=True)}
    await api.post("", json={"job_id": "fragile", "sub_job_configs": [sampling_config(model)]})
    await api.wait_for_job("fragile")
    request = asyncio.create_task(
        api.post("/fragile/generate", json={"prompts": [PROMPT], "sampling_params": asked(1900)}, headers=HELD)
    )
    await asyncio.sleep(0.2)
    [sampler] = [child for child in server.children(recursive=True) if child.pid not in before]
    sampler.kill()
    state = await asyncio.wait_for(request, 5)
    assert (state["status"], state["error_type"], state["blame"]) == ("failed", "WorkerLost", "infrastructure")
    assert f"fragile:sampling:0 (pid {sampler.pid}) was killed by SIGKILL" in state["error"]
    failed = await api.wait_for_job("fragile", "failed")
    assert "was killed by SIGKILL" in failed["reason"]
    assert {child.pid for child in server.children(recursive=True)} == before
    assert (await api.call("POST", "/fragile/step", json={})).status_code == 410
