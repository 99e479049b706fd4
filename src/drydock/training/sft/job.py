"""The job of a supervised run: one trainer, no sampler."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.client import SaveResult, TrainingClient
from drydock.errors import JobFailed
from drydock.training.running_job import running_job
from drydock.training.sft.config import SftConfig
from drydock.training.sft.resume import ResumePoint
from drydock.wire.rest import JobCreate


@dataclass(slots=True)
class SftJob:
    """The trainer as the loop sees it."""

    client: TrainingClient
    job_id: str
    config: SftConfig

    async def train(self, batch: dict[str, Any], learning_rate: float, step: int) -> dict[str, float]:
        """One optimizer step on a batch: loss (mean over its trained tokens) and grad_norm.

        Raises JobFailed when it does not come out as step number `step`.
        """
        limits = self.config.deadlines
        result = await self.client.forward_backward(self.job_id, batch, deadline_s=limits.forward_backward_s)
        stepped = await self.client.step(self.job_id, learning_rate, deadline_s=limits.step_s)
        if stepped.global_steps != step:
            raise JobFailed(
                f"step {step} of job {self.job_id} came out as its step {stepped.global_steps}: is another client "
                "training this job?"
            )
        return {"loss": result.avg_loss, "grad_norm": stepped.metrics.get("grad_norm", float("nan"))}

    async def logprobs(self, batch: dict[str, Any]) -> NDArray[np.float32]:
        """Log-probs of a batch's tokens, predict-next."""
        limit = self.config.deadlines.forward_backward_s
        return (await self.client.forward(self.job_id, {"kwargs": batch["kwargs"]}, deadline_s=limit)).logprobs

    async def save(self, checkpoint_type: str) -> SaveResult:
        """Save a checkpoint; where it is."""
        merge = checkpoint_type == "weights-only" and self.config.trainer.policy.model.lora.merge
        limit = self.config.deadlines.save_s
        return await self.client.save(self.job_id, checkpoint_type=checkpoint_type, merge=merge, deadline_s=limit)


def job_request(config: SftConfig, resume: ResumePoint | None) -> JobCreate:
    """The job's creation body: a trainer of the model, from a checkpoint where the run goes on."""
    trainer = config.trainer
    optimizer, lora = trainer.policy.optimizer_config, trainer.policy.model.lora
    training: dict[str, Any] = {
        "optimizer": {
            "name": "AdamW",
            "lr": optimizer.lr,
            "weight_decay": optimizer.weight_decay,
            "betas": list(optimizer.adam_betas),
        },
        "max_seq_len": config.data.max_length,
        "train_batch_size": trainer.train_batch_size,
        "n_gpus": config.service.n_gpus_training,
        "gradient_clipping": optimizer.max_grad_norm,
        "mb_spec": {"max_tokens_per_mb": config.service.max_tokens_per_microbatch},
    }
    if config.service.torch_threads_training:
        training["torch_threads"] = config.service.torch_threads_training
    if trainer.max_ckpts_to_keep:
        training["checkpoint_retention"] = {"keep_last": trainer.max_ckpts_to_keep}
    if lora.rank:
        training["peft_config"] = {
            "peft_type": "Lora",
            "r": lora.rank,
            "lora_alpha": lora.alpha,
            "lora_dropout": lora.dropout,
            "target_modules": lora.target_modules,
        }
    sub_job: dict[str, Any] = {
        "job_type": "training",
        "model_name": trainer.policy.model.path,
        "seed": trainer.seed,
        "training_config": training,
    }
    if resume is not None:
        sub_job["source_checkpoint_info"] = {
            "checkpoint_id": resume.checkpoint_id,
            "source_job_id": resume.job_id,
        }
    return JobCreate.model_validate(
        {
            "experiment_name": trainer.run_name,
            "comment": config.service.job_comment or trainer.run_name,
            "idle_timeout_seconds": config.service.idle_timeout_s,
            "sub_job_configs": [sub_job],
        }
    )


@asynccontextmanager
async def sft_job(
    client: TrainingClient,
    config: SftConfig,
    resume: ResumePoint | None,
    job_id_file: Path,
    waiting: Callable[[str], None],
) -> AsyncIterator[SftJob]:
    """Create the job, wait until it runs, and cancel it on exit. `waiting` is told what is waited for."""
    async with running_job(client, job_request(config, resume), job_id_file, config.deadlines, waiting) as job:
        yield SftJob(client, job.job_id, config)
