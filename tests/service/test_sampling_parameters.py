"""Sampling parameters beyond a plain completion, and named adapters, through service and client."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import openai
import pytest
import pytest_asyncio
from builders.service_api import Api, chunks_of, sampling_config, sft_batch, training_config

from drydock.client import TrainingClient
from drydock.service.embedded import EmbeddedService
from drydock.wire.rest import SamplingParams

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = list(range(40, 90))
JOB = "several-adapters"
LORA = {"peft_type": "Lora", "r": 4, "lora_alpha": 32, "target_modules": "all-linear"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(service: EmbeddedService) -> AsyncIterator[TrainingClient]:
    async with TrainingClient(service.base_url, token=service.token.get_secret_value()) as made:
        yield made


async def test_several_samples_and_likely_tokens_reach_the_client(client: TrainingClient, job: str):
    params = SamplingParams(max_tokens=6, n=3, seed=1, logprobs=2, prompt_logprobs=1, ignore_eos=True)
    [generation] = await client.generate(job, [PROMPT], params)
    assert generation.samples[0].token_ids == generation.token_ids
    assert len({tuple(sample.token_ids) for sample in generation.samples}) == 3
    assert [len(top) for sample in generation.samples for top in sample.top_logprobs] == [2] * 18
    assert generation.prompt_logprobs[0] is generation.prompt_top_logprobs[0] is None
    assert len(generation.prompt_logprobs) == len(generation.prompt_top_logprobs) == len(PROMPT)
    for logprob, top in zip(generation.prompt_logprobs[1:], generation.prompt_top_logprobs[1:], strict=True):
        assert logprob is not None
        assert top is not None
        assert logprob <= max(top.values()) + 1e-6


async def test_the_hosted_form_names_tokens(api: Api, job: str):
    params = {"max_tokens": 4, "logprobs": 3, "prompt_logprobs": 0, "ignore_eos": True}
    answer = await api.result(f"/{job}/generate", json={"prompts": [PROMPT], "sampling_params": params})
    [result] = answer["results"]
    for token, entry in zip(result["token_ids"], result["logprobs"], strict=True):
        assert 3 <= len(entry) <= 4
        assert entry[str(token)]["logprob"] <= max(value["logprob"] for value in entry.values())
    assert result["prompt_logprobs"][0] is None
    assert [list(entry) for entry in result["prompt_logprobs"][1:]] == [[str(token)] for token in PROMPT[1:]]


async def operation(api: Api, kind: str, payload: dict[str, Any]) -> Any:
    return await api.call("POST", f"/{JOB}/operation", json={"operation_type": kind, "payload": payload})


async def test_checkpoints_of_adapters_are_served_side_by_side(
    api: Api, client: TrainingClient, service: EmbeddedService, model: str
):
    configs = [sampling_config(model), training_config(model, peft_config=LORA, optimizer={"lr": 2e-2})]
    await api.post("", json={"job_id": JOB, "sub_job_configs": configs})
    await api.wait_for_job(JOB)
    for step in range(2):
        ids = np.random.default_rng(step).integers(0, 390, (3, 24))
        [chunk] = chunks_of(sft_batch(ids))
        await api.result(f"/{JOB}/forward-backward", content=chunk)
        await api.result(f"/{JOB}/step", json={})
        checkpoint = f"cp_{step}"
        await api.result(f"/{JOB}/save", json={"checkpoint_id": checkpoint, "checkpoint_type": "weights-only"})
        answer = await operation(api, "load-adapter", {"adapter": f"step-{step}", "checkpoint_id": checkpoint})
        assert answer.status_code == 200, answer.text
    held = (await operation(api, "list-adapters", {})).json()["adapters"]
    assert set(held) == {"step-0", "step-1"}
    assert len(set(held.values())) == 2

    names = [None, "base", "step-0", "step-1"]
    results = []
    for name in names:
        params = SamplingParams(max_tokens=8, temperature=0, adapter=name, logprobs=0, ignore_eos=True)
        results.extend(await client.generate(JOB, [PROMPT], params))
    logprobs = [result.logprobs for result in results]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-5)
    assert all(abs(logprobs[0][0] - logprobs[k][0]) > 1e-4 for k in (2, 3))

    key = service.token.get_secret_value()
    async with openai.AsyncOpenAI(base_url=f"{service.base_url}/v1", api_key=key, max_retries=0) as endpoint:
        assert f"{JOB}:step-1" in {entry.id async for entry in await endpoint.models.list()}
        served = await endpoint.completions.create(
            model=f"{JOB}:step-1", prompt=PROMPT, max_tokens=8, temperature=0, extra_body={"ignore_eos": True}
        )
        assert served.choices[0].text == results[3].text

    assert (await operation(api, "drop-adapter", {"adapter": "step-0"})).status_code == 200
    assert (await operation(api, "drop-adapter", {"adapter": "step-0"})).status_code == 404
    for payload, status in (
        ({"adapter": "base", "checkpoint_id": "cp_0"}, 422),
        ({"adapter": "../x", "checkpoint_id": "cp_0"}, 422),
        ({"adapter": "x", "checkpoint_id": "nothing"}, 422),
        ({"checkpoint_id": "cp_0"}, 422),
    ):
        answer = await operation(api, "load-adapter", payload)
        assert answer.status_code == status, answer.text
    await api.call("POST", f"/{JOB}:cancel", json={})
