"""A LoRA job with a reference model through the service: train, sync, score, save, and jobs that start from it."""

from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from builders.service_api import Api, chunks_of, log_probability_config, sampling_config, sft_batch, training_config

pytestmark = pytest.mark.asyncio(loop_scope="session")

LORA = {"peft_type": "Lora", "r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
IDS = np.random.default_rng(0).integers(0, 390, (3, 24))
JOB = "adapted"
TRAINER, SAMPLER, REFERENCE = f"{JOB}:training:0", f"{JOB}:sampling:0", f"{JOB}:log_prob:0"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def adapted(api: Api, model: str) -> str:
    configs = [
        sampling_config(model, peft_config=LORA),
        log_probability_config(model),
        training_config(model, peft_config=LORA, optimizer={"name": "adamw", "lr": 2e-2}),
    ]
    await api.post("", json={"job_id": JOB, "sub_job_configs": configs})
    await api.wait_for_job(JOB)
    return JOB


async def train(api: Api, job: str, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        [chunk] = chunks_of(sft_batch(IDS))
        losses.append((await api.result(f"/{job}/forward-backward", content=chunk))["avg_loss"])
        await api.result(f"/{job}/step", json={})
    return losses


async def forward(api: Api, job: str, **fields: Any) -> dict[str, Any]:
    payload = {"kwargs": {"input_ids": IDS.tolist()}, "processing": {"post": ["compute_entropy"]}}
    answer = await api.result(f"/{job}/operation", json={"operation_type": "forward", "payload": payload, **fields})
    return {name: np.array(value) for name, value in answer["post_process_outputs"].items()}


async def sampled(api: Api, job: str) -> tuple[list[int], list[float]]:
    params = {"max_tokens": 8, "temperature": 0.0, "logprobs": 0, "ignore_eos": True}
    answer = await api.result(f"/{job}/generate", json={"prompts": [IDS[0, :8].tolist()], "sampling_params": params})
    [result] = answer["results"]
    logprobs = [entry[str(token)] for token, entry in zip(result["token_ids"], result["logprobs"], strict=True)]
    return result["token_ids"], [value["logprob"] for value in logprobs]


async def test_an_adapter_is_trained_synced_saved_and_started_from(api: Api, adapted: str, model: str):
    before = await forward(api, JOB, sub_job_id=REFERENCE)
    assert before["entropy"].min() >= 0
    np.testing.assert_allclose((await forward(api, JOB))["logprobs"], before["logprobs"], atol=1e-5)
    losses = await train(api, JOB, 6)
    assert losses[-1] < 0.8 * losses[0]
    after = await forward(api, JOB, sub_job_type="training")
    assert after["logprobs"].mean() > before["logprobs"].mean() + 0.5
    again = await forward(api, JOB, sub_job_type="log_prob")
    np.testing.assert_array_equal(again["logprobs"], before["logprobs"])

    old = await sampled(api, JOB)
    fingerprints = []
    for weight_format in (None, "vllm"):
        payload = {"source_sub_job_id": TRAINER, "target_sub_job_ids": [SAMPLER], "weight_format": weight_format}
        sync = await api.result(f"/{JOB}/operation", json={"operation_type": "weight-sync", "payload": payload})
        fingerprints.append(sync["fingerprint"])
        tokens, logprobs = await sampled(api, JOB)
        assert (tokens, logprobs) != old
    assert fingerprints[0] != fingerprints[1]

    refused = await api.call("POST", f"/{JOB}/save", json={"merge": True})
    assert refused.status_code == 422
    for name, fields in (
        ("resumable", {}),
        ("adapter", {"checkpoint_type": "weights-only"}),
        ("merged", {"checkpoint_type": "weights-only", "merge": True}),
    ):
        await api.result(f"/{JOB}/save", json={"checkpoint_id": name, **fields})

    source = {"source_job_id": JOB, "checkpoint_id": "adapter"}
    whole = {**training_config(model), "source_checkpoint_info": source}
    answer = await api.call("POST", "", json={"sub_job_configs": [whole]})
    assert answer.status_code == 422
    assert "holds an adapter" in answer.json()["message"]

    await api.post(f"/{JOB}:cancel")
    configs = [
        {**training_config(model, peft_config=LORA), "source_checkpoint_info": source | {"checkpoint_id": "resumable"}},
        {**sampling_config(model), "source_checkpoint_info": source},
        {**log_probability_config(model), "source_checkpoint_info": source | {"checkpoint_id": "merged"}},
    ]
    await api.post("", json={"job_id": "next", "sub_job_configs": configs})
    await api.wait_for_job("next")
    np.testing.assert_allclose((await forward(api, "next"))["logprobs"], after["logprobs"], atol=1e-5)
    merged = await forward(api, "next", sub_job_type="log_prob")
    np.testing.assert_allclose(merged["logprobs"], after["logprobs"], atol=1e-3)
    assert (await sampled(api, "next"))[0] == tokens
    step = await train(api, "next", 1)
    assert step[0] < losses[-1]
    await api.post("/next:cancel")
