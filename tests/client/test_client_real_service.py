"""The client against the real service: one small job through all the calls that training makes."""

import numpy as np
import pytest
from builders.tiny_model import build_tiny_model

from drydock.client import TrainingClient
from drydock.errors import ServiceError
from drydock.service.embedded import EmbeddedService
from drydock.wire import JobCreate, JobStatus, SamplingParams


def job_body(model: str) -> JobCreate:
    return JobCreate.model_validate(
        {
            "comment": "client test",
            "sub_job_configs": [
                {
                    "job_type": "training",
                    "model_name": model,
                    "training_config": {
                        "optimizer": {"name": "AdamW", "lr": 1e-3},
                        "max_seq_len": 128,
                        "train_batch_size": 2,
                        "n_gpus": 1,
                    },
                },
                {"job_type": "sampling", "model_name": model, "inference_config": {"max_seq_len": 128, "n_gpus": 1}},
            ],
        }
    )


@pytest.mark.timeout(300)
async def test_a_job_from_creation_to_cancellation(tmp_path):
    model = build_tiny_model(tmp_path / "model")
    async with (
        EmbeddedService(tmp_path / "state") as service,
        TrainingClient(service.base_url, token=service.token) as client,
    ):
        async with TrainingClient(service.base_url, token="wrong") as stranger:
            with pytest.raises(ServiceError, match="list jobs: HTTP 401"):
                await stranger.list_jobs()
        created = await client.create_job(job_body(str(model)))
        job = await client.wait_for_job(created.job_id, 180)
        training, sampling = (sub_job.sub_job_id for sub_job in job.sub_jobs)

        prompt = list(range(20, 40))
        params = SamplingParams(max_tokens=8, logprobs=0, ignore_eos=True, seed=1)
        first, second = await client.generate(job.job_id, [prompt, prompt[:5]], params, routing_key="r", deadline_s=60)
        assert len(first.token_ids) == len(first.logprobs) == len(second.token_ids) == 8
        assert all(logprob < 0 for logprob in first.logprobs)
        assert (first.policy_version, first.finish_reason) == (0, "length")

        row = prompt + first.token_ids
        width = len(row)
        old = np.zeros((1, width), np.float32)
        old[0, len(prompt) - 1 : width - 1] = first.logprobs
        mask = np.zeros((1, width), np.int64)
        mask[0, len(prompt) - 1 : width - 1] = 1
        batch = {
            "kwargs": {"input_ids": [row], "attention_mask": [[1] * width]},
            "context": {"advantages": mask * 1.0, "loss_mask": mask, "old_log_probs_shifted": old},
            "processing": {
                "loss_fn": "grpo",
                "config": {"importance_sampling_level": "sequence"},
                "post": ["compute_logprobs"],
            },
        }
        result = await client.forward_backward(job.job_id, batch, deadline_s=60)
        logprobs = result.post_process_outputs["logprobs"]
        assert logprobs.shape == (1, width)
        np.testing.assert_allclose(logprobs[mask == 1], first.logprobs, atol=1e-4)
        assert (await client.step(job.job_id, 1e-3, deadline_s=60)).global_steps == 1
        sync = await client.weight_sync(job.job_id, training, [sampling], deadline_s=60)
        assert sync.policy_version == 1
        assert sync.fingerprint
        (after,) = await client.generate(job.job_id, [prompt], params, deadline_s=60)
        assert after.policy_version == 1
        assert after.logprobs != first.logprobs
        assert (await client.save(job.job_id, deadline_s=60)).checkpoint_id

        with pytest.raises(ServiceError, match=f"generate on job {job.job_id}: "):
            await client.generate(job.job_id, [[1] * 500], params, deadline_s=60)
        with pytest.raises(ServiceError, match="get job nope: HTTP 404"):
            await client.get_job("nope")
        await client.cancel_job(job.job_id)
        assert [found.status for found in await client.list_jobs(comment="client test")] == [JobStatus.CANCELLED]
