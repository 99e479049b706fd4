"""The proxy over the real training service: a rollout of an untrained tiny model, sampled for real."""

import asyncio
import time
from pathlib import Path

import pytest
from builders.proxy_calls import START, message_of, post
from builders.tiny_model import build_tiny_model

from drydock.client import TrainingClient
from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, ServiceSampler, audit
from drydock.service.embedded import EmbeddedService
from drydock.wire import JobCreate, SamplingParams


@pytest.mark.timeout(300)
async def test_a_rollout_over_the_real_service(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    template = ChatTemplate.load(model)
    inference = {"max_seq_len": 1024, "n_gpus": 1}
    sub_job = {"job_type": "sampling", "model_name": str(model), "inference_config": inference}
    settings = ProxySettings(sampling=SamplingParams(temperature=0.7, seed=3), context_tokens=1024, max_new_tokens=12)
    async with (
        EmbeddedService(tmp_path / "state") as service,
        TrainingClient(service.base_url, token=service.token.get_secret_value()) as client,
    ):
        job = await client.create_job(JobCreate.model_validate({"sub_job_configs": [sub_job]}))
        await client.wait_for_job(job.job_id, 180)
        async with ChatProxy(template, HermesParser(), ServiceSampler(client, job.job_id), settings) as proxy:
            session = proxy.open_rollout("r")
            messages = list(START)
            for number in range(3):
                messages += [message_of(await post(session, messages)), {"role": "user", "content": str(number)}]
            record = await session.close()
            await client.cancel_job(job.job_id)
            gone = proxy.open_rollout("after the job")
            assert (await post(gone, START)).status_code == 500
            assert "cancelled" in str((await gone.close()).sampler_error)
    assert record.branch_reasons == {}
    assert len(record.samples) == 1
    assert audit(record).clean
    for turn in record.turns:
        assert 1 <= len(turn.sampled_ids) <= 12
        assert turn.policy_version == 0
        assert all(logprob <= 0 for logprob in turn.logprobs)
        assert turn.finish_reason == ("stop" if turn.sampled_ids[-1] in template.stop_ids else "length")


@pytest.mark.timeout(300)
async def test_closing_a_rollout_frees_the_sampler_at_the_service(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    inference = {"max_seq_len": 8192, "n_gpus": 1}
    sub_job = {"job_type": "sampling", "model_name": str(model), "inference_config": inference}
    settings = ProxySettings(
        sampling=SamplingParams(min_tokens=7000, max_tokens=7000),
        context_tokens=8192,
        max_new_tokens=8000,
        call_deadline_s=60,
    )
    async with (
        EmbeddedService(tmp_path / "state") as service,
        TrainingClient(service.base_url, token=service.token.get_secret_value()) as client,
    ):
        job = await client.create_job(JobCreate.model_validate({"sub_job_configs": [sub_job]}))
        await client.wait_for_job(job.job_id, 180)
        sampler = ServiceSampler(client, job.job_id)
        async with ChatProxy(ChatTemplate.load(model), HermesParser(), sampler, settings) as proxy:
            session = proxy.open_rollout("r")
            waiting = asyncio.create_task(post(session, START))
            await asyncio.sleep(1.0)
            assert not waiting.done()
            record = await session.close()
            started = time.monotonic()
            await client.reset_prefix_cache(job.job_id)
            assert time.monotonic() - started < 1.0, "the sampler is idle at once"
            assert (await waiting).status_code == 403
    assert record.turns == []
    assert record.sampler_error is None
