"""One rollout, made and trained for real, and what the whole run would take by it.

For a run that nobody has made yet. The rollout has a job of its own, whose policy is thrown away; a mean over an
earlier run's steps (`forecast.py`) says more, because rollouts that share a sampler slow each other down.
"""

import asyncio
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drydock.client import TrainingClient
from drydock.errors import DrydockError, UserError
from drydock.own_directory import own_directory
from drydock.report.progress import RunProgress
from drydock.rollout.trajectory import Trajectory
from drydock.training.batch import policy_batch, rows_of
from drydock.training.config import RunConfig
from drydock.training.forecast import NOT_PROPORTIONAL, Forecast
from drydock.training.job_usage import PREFIX, JobUsage
from drydock.training.named_apart import named_apart
from drydock.training.policy_job import PolicyJob, policy_job
from drydock.training.rollout_batch import RolloutBatches
from drydock.training.run_folder import RunFolder
from drydock.training.run_service import Secrets, run_service
from drydock.training.train_step import loss_config

if TYPE_CHECKING:
    from drydock.training.session import RolloutSession

OF_TIME = ("gpu_seconds", "cpu_slot_seconds")
"""Meters that grow with the time that the job is there, whatever it does."""


@dataclass(frozen=True, slots=True)
class MeasuredRollout:
    """rollout_s: from the sandbox's start to the reward. train_s: forward and backward of its tokens. update_s: one
    optimizer step and weight sync.

    per_second, per_rollout: meter to amount; per_rollout holds what is left when time is taken out.
    prices: meter to price of a unit, where the service says them.
    """

    rollout_s: float
    train_s: float
    update_s: float
    per_second: Mapping[str, float]
    per_rollout: Mapping[str, float]
    prices: Mapping[str, float]

    def seconds_of(self, forecast: Forecast, config: RunConfig) -> float:
        """Time of all steps and evaluations, if rollouts beside each other take as long as one alone."""
        generator, trainer = config.generator, config.trainer
        workers = generator.num_parallel_generation_workers
        a_step = forecast.train_rollouts / max(1, forecast.steps)
        an_evaluation = forecast.eval_rollouts / max(1, forecast.evaluations)
        updates = trainer.train_batch_size / (trainer.policy_mini_batch_size or trainer.train_batch_size)
        generating = math.ceil(a_step / workers) * self.rollout_s
        training = a_step * self.train_s + updates * self.update_s
        step = max(generating, training) if trainer.max_staleness_steps else generating + training
        return forecast.steps * step + forecast.evaluations * math.ceil(an_evaluation / workers) * self.rollout_s

    def usage_of(self, forecast: Forecast, config: RunConfig) -> dict[str, float]:
        """What the run would use, by meter; a cost where the service says its prices."""
        seconds, rollouts = self.seconds_of(forecast, config), forecast.train_rollouts + forecast.eval_rollouts
        used = {name: rate * seconds for name, rate in self.per_second.items()}
        used |= {
            name: amount * (forecast.train_rollouts if name == "trained_tokens" else rollouts)
            for name, amount in self.per_rollout.items()
        }
        if self.prices:
            used["cost"] = sum(used.get(name, 0.0) * price for name, price in self.prices.items())
        return used


async def measure_rollout(
    config: RunConfig, secrets: Secrets, session: "RolloutSession", progress: RunProgress
) -> MeasuredRollout:
    """Make and train one rollout of the first task, in a job that is cancelled at the end; nothing is kept.

    Raises UserError when the rollout has nothing to train, and the errors of a job.
    """
    own = _measured_config(config)
    directory = own_directory("measured")  # a reaper takes it away where this process is killed
    try:
        folder = RunFolder.of(directory, own.trainer.run_name)
        async with (
            run_service(own.service, secrets, folder, own.deadlines.service_start_s, progress) as client,
            policy_job(client, own, folder.job_id, progress.waiting) as job,
            session.pools(client, job.job_id, folder, progress) as pools,
        ):
            usage = JobUsage(client, job.job_id)
            await usage.since_last()
            started = time.monotonic()
            progress.waiting("one rollout to be made")
            batches = RolloutBatches(own, folder)
            groups = batches.groups(session.plan.train_tasks[:1], 1, "train", 1)
            (trajectory,) = (await batches.run(pools["train"], groups, lambda: None)).trajectories
            made = time.monotonic()
            progress.waiting("the rollout to be trained")
            train_s, update_s = await _train(trajectory, job, own)
            used = await usage.since_last()
            seconds = time.monotonic() - started
            prices = await _prices(client, job.job_id) if used else {}
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    amounts = {name.removeprefix(PREFIX): amount for name, amount in used.items()}
    return MeasuredRollout(
        rollout_s=made - started,
        train_s=train_s,
        update_s=update_s,
        per_second={name: amount / seconds for name, amount in amounts.items() if name in OF_TIME},
        per_rollout={
            name: amount for name, amount in amounts.items() if name not in (*OF_TIME, *NOT_PROPORTIONAL, "cost")
        },
        prices={name: price for name, price in prices.items() if name not in NOT_PROPORTIONAL},
    )


async def _train(trajectory: Trajectory, job: PolicyJob, config: RunConfig) -> tuple[float, float]:
    """Seconds of forward and backward, and of optimizer step and weight sync."""
    trajectory.advantage = 1.0
    rows = rows_of(trajectory)
    if not rows:
        raise UserError(
            f"nothing can be measured: the rollout of task {trajectory.task} ended as {trajectory.outcome.value} "
            f"without a token to train{f' ({trajectory.error})' if trajectory.error else ''}; "
            "`drydock doctor RUN.toml` looks for the cause"
        )
    started = time.monotonic()
    tokens = sum(row.trained_tokens for row in rows)
    await job.forward_backward(policy_batch(rows, loss_fn="grpo", loss_config=loss_config(config, 1, tokens)))
    trained = time.monotonic()
    await job.step(config.trainer.policy.optimizer_config.lr)
    await job.sync()
    return trained - started, time.monotonic() - trained


async def _prices(client: TrainingClient, job_id: str) -> dict[str, float]:
    try:
        answer: dict[str, Any] = await client.job_usage(job_id)
    except DrydockError:
        return {}
    return dict(answer.get("prices") or {})


def _measured_config(config: RunConfig) -> RunConfig:
    """The run apart from itself, without a second try, which would be measured too, and without the correction for
    stale rollouts, which there are none of."""
    apart = named_apart(config, "measured")
    algorithm = apart.trainer.algorithm.model_copy(update={"off_policy_correction": "none"})
    return apart.model_copy(
        update={
            "trainer": apart.trainer.model_copy(update={"algorithm": algorithm}),
            "generator": apart.generator.model_copy(update={"replacement_share": 0.0}),
        }
    )
