"""The run's job on the training service: the policy as the loop sees it.

After each weight sync the sampler must confirm the version that the optimizer reached, else the run stops: a rollout
from a policy nobody knows is worth nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.client import SaveResult, TrainingClient
from drydock.errors import JobFailed
from drydock.training.config import RunConfig
from drydock.training.resume import ResumePoint
from drydock.training.running_job import running_job
from drydock.wire.rest import JobCreate


@dataclass(slots=True)
class PolicyJob:
    """version: optimizer steps taken so far; after `sync` the sampler has confirmed it as its policy version."""

    client: TrainingClient
    job_id: str
    training_sub_job: str
    sampling_sub_job: str
    config: RunConfig
    version: int = 0

    async def forward_backward(self, batch: dict[str, Any]) -> dict[str, float]:
        """Accumulate gradients of one batch; the call's metrics."""
        limit = self.config.deadlines.forward_backward_s
        result = await self.client.forward_backward(self.job_id, batch, deadline_s=limit)
        return {"loss": result.avg_loss, **result.metrics}

    async def logprobs(self, batch: dict[str, Any]) -> NDArray[np.float32]:
        """Log-probs of a batch's tokens under the trainer's present weights, `[batch, seq]`, predict-next."""
        limit = self.config.deadlines.forward_backward_s
        scores = await self.client.forward(self.job_id, {"kwargs": batch["kwargs"]}, deadline_s=limit)
        return scores.logprobs

    async def step(self, learning_rate: float) -> dict[str, float]:
        """One optimizer step; its metrics, the gradient's norm among them."""
        result = await self.client.step(self.job_id, learning_rate, deadline_s=self.config.deadlines.step_s)
        self.version = result.global_steps
        return dict(result.metrics)

    async def sync(self) -> str | None:
        """Send the weights to the sampler; the fingerprint that both sides agree on, where the service reports one."""
        result = await self.client.weight_sync(
            self.job_id,
            self.training_sub_job,
            [self.sampling_sub_job],
            deadline_s=self.config.deadlines.weight_sync_s,
        )
        if result.policy_version not in (self.version, None):
            raise JobFailed(
                f"the sampler of job {self.job_id} confirms policy version {result.policy_version}, "
                f"expected {self.version}: another client may be training this job"
            )
        return result.fingerprint

    async def save(self, checkpoint_type: str) -> SaveResult:
        """Save a checkpoint; where it is."""
        limit = self.config.deadlines.save_s
        return await self.client.save(self.job_id, checkpoint_type=checkpoint_type, deadline_s=limit)


def job_request(config: RunConfig, comment: str, resume: ResumePoint | None = None) -> JobCreate:
    """The job's creation body: one training and one sampling sub-job of the same model, or of a run's checkpoint."""
    optimizer = config.trainer.policy.optimizer_config
    context = config.generator.max_input_length
    training: dict[str, Any] = {
        "optimizer": {
            "name": "AdamW",
            "lr": optimizer.lr,
            "weight_decay": optimizer.weight_decay,
            "betas": list(optimizer.adam_betas),
        },
        "max_seq_len": context,
        "train_batch_size": config.trainer.train_batch_size * config.generator.n_samples_per_prompt,
        "n_gpus": config.service.n_gpus_training,
        "gradient_clipping": optimizer.max_grad_norm,
        "mb_spec": {"max_tokens_per_mb": config.service.max_tokens_per_microbatch},
    }
    if config.trainer.max_ckpts_to_keep:
        training["checkpoint_retention"] = {"keep_last": config.trainer.max_ckpts_to_keep}
    inference: dict[str, Any] = {"max_seq_len": context, "n_gpus": config.service.n_gpus_sampling}
    if config.service.torch_threads_training:
        training["torch_threads"] = config.service.torch_threads_training
    if config.service.torch_threads_sampling:
        inference["torch_threads"] = config.service.torch_threads_sampling
    model: dict[str, Any] = {"model_name": config.trainer.policy.model.path, "seed": config.trainer.seed}
    if resume is not None:
        model["source_checkpoint_info"] = {
            "checkpoint_id": resume.checkpoint_id,
            "source_job_id": resume.job_id,
        }
    return JobCreate.model_validate(
        {
            "experiment_name": config.trainer.run_name,
            "comment": comment,
            "idle_timeout_seconds": config.service.idle_timeout_s,
            "sub_job_configs": [
                {"job_type": "training", **model, "training_config": training},
                {"job_type": "sampling", **model, "inference_config": inference},
            ],
        }
    )


@asynccontextmanager
async def policy_job(
    client: TrainingClient,
    config: RunConfig,
    job_id_file: Path,
    waiting: Callable[[str], None],
    resume: ResumePoint | None = None,
) -> AsyncIterator[PolicyJob]:
    """Create the job, wait until it runs, and cancel it on exit. `waiting` is told what is waited for.

    resume: the checkpoint that it starts from; the sampler has confirmed its weights when the block begins.
    """
    request = job_request(config, config.service.job_comment or config.trainer.run_name, resume)
    async with running_job(client, request, job_id_file, config.deadlines, waiting) as job:
        by_type = {sub_job.job_type: sub_job.sub_job_id for sub_job in job.sub_jobs}
        policy = PolicyJob(client, job.job_id, by_type["training"], by_type["sampling"], config)
        if resume is not None:
            waiting("the sampler to confirm the checkpoint's weights")
            policy.version = resume.version
            await policy.sync()
        yield policy
