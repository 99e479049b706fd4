"""The client's options for a LoRA job (merged saves, weight formats), log-prob sub-jobs, and checkpoint retention."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from builders.service_api import log_probability_config, sampling_config, sft_batch, training_config
from builders.tiny_model import build_tiny_model

from drydock.client import Refused, TrainingClient
from drydock.client.sync import SyncTrainingClient
from drydock.service.embedded import EmbeddedService
from drydock.wire import JobCreate, SamplingParams

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = "lora"
TRAINER, SAMPLER, SCORER = f"{JOB}:training:0", f"{JOB}:sampling:0", f"{JOB}:log_prob:0"
ROWS = np.random.default_rng(3).integers(5, 200, (3, 12))
BATCH = {"kwargs": {"input_ids": ROWS, "attention_mask": np.ones_like(ROWS)}}
PEFT = {"peft_type": "Lora", "r": 4, "lora_alpha": 16, "target_modules": "all-linear"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedService]:
    folder = tmp_path_factory.mktemp("adapters")
    model = str(build_tiny_model(folder / "model"))
    kept = {"keep_last": 2, "keep_every_steps": 4}
    configs = [
        training_config(model, peft_config=PEFT, checkpoint_retention=kept),
        sampling_config(model),
        log_probability_config(model),
    ]
    async with EmbeddedService(folder / "state", pool={"CPU": 8}) as running:
        async with client_of(running) as client:
            body = JobCreate.model_validate({"job_id": JOB, "sub_job_configs": configs})
            await client.create_job(body)
            job = await client.wait_for_job(JOB, 120)
            assert {sub.sub_job_id for sub in job.sub_jobs} == {TRAINER, SAMPLER, SCORER}
        yield running


def client_of(service: EmbeddedService) -> TrainingClient:
    return TrainingClient(service.base_url, token=service.token)


async def step(client: TrainingClient, rate: float = 0.05) -> int:
    await client.forward_backward(JOB, sft_batch(ROWS), 60)
    return (await client.step(JOB, rate, 60)).global_steps


async def test_scores_come_from_the_sub_job_that_is_named(service: EmbeddedService):
    async with client_of(service) as client:
        await step(client)
        trainer, reference = [
            await client.forward(JOB, BATCH, sub_job_id=name, entropy=True, deadline_s=60) for name in (TRAINER, SCORER)
        ]
        unnamed = await client.forward(JOB, BATCH, deadline_s=60)
        np.testing.assert_allclose(unnamed.logprobs, trainer.logprobs, atol=1e-6)
        assert unnamed.entropy is None
        assert np.abs(trainer.logprobs - reference.logprobs).max() > 1e-3, "the reference does not learn"
        assert trainer.entropy is not None
        assert (trainer.entropy[:, :-1] > 0).all()
        assert (trainer.entropy[:, -1] == 0).all()
        hot = await client.forward(JOB, BATCH, entropy=True, temperature=50.0, deadline_s=60)
        assert hot.entropy is not None
        assert (hot.entropy[:, :-1] > trainer.entropy[:, :-1]).all()
        mixed = np.ones(ROWS.shape)
        mixed[0] = 50.0
        rows = await client.forward(JOB, BATCH, temperature=mixed, deadline_s=60)
        np.testing.assert_allclose(rows.logprobs, np.vstack([hot.logprobs[:1], trainer.logprobs[1:]]), atol=1e-5)
        with pytest.raises(Refused, match="sub_job_id"):
            await client.forward(JOB, BATCH, sub_job_id=SAMPLER, deadline_s=60)


async def test_whole_weights_and_adapters_are_synced_and_saved(service: EmbeddedService, tmp_path: Path):
    params = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True, logprobs=0)
    async with client_of(service) as client:
        await step(client)
        found = []
        for weight_format in (None, "lora", "hf"):
            sync = await client.weight_sync(JOB, TRAINER, [SAMPLER], 60, weight_format=weight_format)
            (sampled,) = await client.generate(JOB, [[5, 6, 7]], params, deadline_s=60)
            found.append((sync.fingerprint, sampled))
        assert found[0][0] == found[1][0] != found[2][0], "an adapter is the default"
        for _, sampled in found[1:]:
            assert sampled.token_ids == found[0][1].token_ids
            np.testing.assert_allclose(sampled.logprobs, found[0][1].logprobs, atol=1e-4)
        merged = await client.save(JOB, checkpoint_type="weights-only", merge=True, deadline_s=60)
        names = {file.name for file in await client.download_checkpoint(JOB, merged.checkpoint_id, tmp_path / "merged")}
        assert "model.safetensors" in names
        assert "adapter_config.json" not in names
        with pytest.raises(Refused, match="merge"):
            await client.save(JOB, merge=True, deadline_s=60)


async def test_retention_removes_what_nobody_needs(service: EmbeddedService):
    async with client_of(service) as client:
        await client.save(JOB, checkpoint_id="exported", deadline_s=60)
        await client.export_checkpoint(JOB, "exported")
        source = await client.save(JOB, checkpoint_id="source", checkpoint_type="weights-only", merge=True)
        model = str(source.details["checkpoint_path"])
        user = JobCreate.model_validate({"job_id": "user", "sub_job_configs": [sampling_config(model)]})
        await client.create_job(user)
        steps = []
        for _ in range(6):
            steps.append(await step(client))
            await client.save(JOB, checkpoint_id=f"at-{steps[-1]}", deadline_s=60)
        listed = {found.checkpoint_id for found in await client.list_checkpoints(JOB)}
        assert listed >= {"exported", "source"}
        fourths = {f"at-{number}" for number in steps if number % 4 == 0}
        expected = {f"at-{number}" for number in steps[-2:]} | fourths
        assert {name for name in listed if name.startswith("at-")} == expected
        await client.load(JOB, "exported", deadline_s=60)
        await client.cancel_job("user")
        bad = training_config(model, checkpoint_retention={"keep_last": 0})
        with pytest.raises(Refused, match="keep_last"):
            await client.create_job(JobCreate.model_validate({"sub_job_configs": [bad]}))


async def test_the_sync_face_has_the_same_options(service: EmbeddedService):
    await asyncio.to_thread(use_sync_face, service)


def use_sync_face(service: EmbeddedService) -> None:
    with SyncTrainingClient(service.base_url, token=service.token) as client:
        scores = client.forward(JOB, BATCH, sub_job_id=SCORER, entropy=True, temperature=2.0, deadline_s=60)
        assert scores.entropy is not None
        assert scores.logprobs.shape == scores.entropy.shape == ROWS.shape
        assert client.weight_sync(JOB, TRAINER, [SAMPLER], 60, weight_format="hf").fingerprint
        assert client.save(JOB, checkpoint_type="weights-only", merge=True, deadline_s=60).checkpoint_id
