"""Our own client against the running service."""

import asyncio
import time

import numpy as np
import pytest
from builders.service_api import Api, sft_batch

from drydock.client import Refused, TrainingClient
from drydock.errors import ServiceError
from drydock.service.embedded import EmbeddedService
from drydock.wire.rest import SamplingParams

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_our_client_trains_syncs_and_samples(service: EmbeddedService, job: str):
    async with TrainingClient(service.base_url, token=service.token.get_secret_value()) as client:
        assert (await client.wait_for_job(job, 30)).job_id == job
        batch = sft_batch(np.random.default_rng(3).integers(5, 200, (2, 12)), post=["compute_logprobs"])
        first = await client.forward_backward(job, batch, 30)
        assert first.post_process_outputs["logprobs"].shape == (2, 12)
        step = await client.step(job, 0.01, 30)
        assert (await client.forward_backward(job, batch, 30)).avg_loss < first.avg_loss
        await client.step(job, 0.0, 30)
        sync = await client.weight_sync(job, f"{job}:training:0", [f"{job}:sampling:0"], 30)
        assert sync.policy_version == step.global_steps + 1
        assert sync.fingerprint
        params = SamplingParams(max_tokens=5, ignore_eos=True, logprobs=0)
        generations = await client.generate(job, [[5, 6, 7], "text"], params, deadline_s=30)
        assert [len(g.token_ids) for g in generations] == [5, 5]
        assert [len(g.logprobs) for g in generations] == [5, 5]
        assert {g.policy_version for g in generations} == {sync.policy_version}
        with pytest.raises(Refused, match="vocabulary"):
            await client.generate(job, [[10**6]], params, deadline_s=30)
        started = time.monotonic()
        with pytest.raises(ServiceError, match="no job 'typo'"):
            await client.get_job("typo")
        assert time.monotonic() - started < 2


async def test_calls_from_many_rollouts_at_once_all_get_their_own_answer(service: EmbeddedService, api: Api, job: str):
    async with TrainingClient(service.base_url, token=service.token.get_secret_value()) as client:

        async def ask(index: int) -> list[int]:
            params = SamplingParams(max_tokens=1 + index % 7, ignore_eos=True, temperature=0.0)
            [generation] = await client.generate(
                job, [[5, 6, 7 + index]], params, routing_key=f"rollout-{index}", deadline_s=60
            )
            return generation.token_ids

        answers = await asyncio.gather(*(ask(index) for index in range(100)))
        assert [len(ids) for ids in answers] == [1 + index % 7 for index in range(100)]
        assert await ask(3) == answers[3]
