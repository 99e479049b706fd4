"""The run: evaluate, warm-start, train step after step, evaluate again.

The loop knows no process, port or signal: those belong to `launch.py`, which hands it a job, a rollout pool and a
folder. It writes everything as it goes, so that a run that is stopped keeps all that it computed.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drydock.amount import amount
from drydock.chat.template import ChatTemplate
from drydock.deadline import deadline
from drydock.errors import DrydockError
from drydock.report.curve import RewardCurve
from drydock.report.metrics import MetricsFile
from drydock.report.progress import RunProgress
from drydock.report.reward_graph import draw_reward_graph
from drydock.report.run_marks import STEPS
from drydock.rollout.runner import RolloutRunner
from drydock.training.ahead import RolloutsAhead
from drydock.training.config import RunConfig
from drydock.training.demonstrations import read_demonstrations, supervised_rows
from drydock.training.diagnosis import Diagnosis, StepFacts, diagnosis_metrics
from drydock.training.diagnosis.policy_version import versions_of
from drydock.training.evaluation import evaluation_metrics
from drydock.training.job_usage import JobUsage
from drydock.training.plan import RunPlan
from drydock.training.policy_job import PolicyJob
from drydock.training.policy_versions import PolicyVersions
from drydock.training.resume import ResumePoint
from drydock.training.rollout_batch import RolloutBatches
from drydock.training.run_audit import audit_trajectories
from drydock.training.run_folder import RunFolder, keep_checkpoint
from drydock.training.step_rollouts import StepCollector, StepRollouts
from drydock.training.train_step import train_step
from drydock.training.warm_start import run_stage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TrainingLoop:
    """One run's loop over a live job and rollout pool. trained: steps that are behind it, of an earlier start."""

    config: RunConfig
    plan: RunPlan
    folder: RunFolder
    job: PolicyJob
    collector: StepCollector
    batches: RolloutBatches
    eval_pool: RolloutRunner
    template: ChatTemplate
    system_prompt: str
    tools: list[dict]
    progress: RunProgress
    diagnosis: Diagnosis
    trained: int = 0
    versions: PolicyVersions = field(default_factory=PolicyVersions)
    usage: JobUsage = field(init=False)

    def __post_init__(self) -> None:
        self.usage = JobUsage(self.job.client, self.job.job_id)

    async def run(self) -> None:
        """The rest of the run; metrics, trajectories and the graph are on disk when it returns."""
        trainer = self.config.trainer
        log.info("%s %d", STEPS, self.plan.steps)
        if not self.trained:
            await self._warm_start()
            if trainer.eval_before_train:
                await self._evaluate(0)
        try:
            await self._train_steps()
        except asyncio.CancelledError:
            if trainer.save_on_stop:
                await self._save_on_stop()
            raise
        if trainer.eval_after_train:
            await self._evaluate(self.plan.steps)
        if trainer.save_final_checkpoint:
            await self._save(self.plan.steps, "weights-only")

    async def _train_steps(self) -> None:
        trainer, last = self.config.trainer, self.plan.steps
        async with RolloutsAhead(
            self.collector.collect, first=self.trained + 1, last=last, max_staleness=trainer.max_staleness_steps
        ) as ahead:
            for step in range(self.trained + 1, last + 1):
                await self._train(step, ahead)
                self.trained = step
                due = trainer.eval_interval and step % trainer.eval_interval == 0
                if due and not (step == last and trainer.eval_after_train):
                    await self._evaluate(step)
                if trainer.ckpt_interval and step % trainer.ckpt_interval == 0:
                    await self._save(step, "resumable")

    async def _warm_start(self) -> None:
        for number, stage in enumerate(self.config.warm_start, start=1):
            name = f"warm start {number}, {stage.conversations.stem}"
            self.progress.waiting(f"{name}: conversations to be tokenized")
            conversations = read_demonstrations(stage.conversations)
            rows = list(supervised_rows(conversations, self.template, self.system_prompt, self.tools))
            started = time.monotonic()
            with self.progress.counted(name, stage.steps) as counter:
                seed = f"{self.config.trainer.seed}/{number}"
                loss = await run_stage(stage, rows, self.job, seed, counter.advance)
            seconds = time.monotonic() - started
            self.progress.note(f"{name}: {amount(stage.steps, 'step')} in {seconds:.0f} s, loss {loss:.3f}")
        if self.config.warm_start:
            self.progress.waiting("the sampler to take the warm-started weights")
            await self.job.sync()
            self.versions = PolicyVersions.at(0, self.job.version)

    async def _train(self, step: int, ahead: RolloutsAhead[StepRollouts]) -> None:
        started = time.monotonic()
        found = await ahead.take(step)
        generated = time.monotonic()
        if not found.tasks:
            self.versions.reached(step, self.job.version)
            self.progress.note(f"step {step} of {self.plan.steps} is left out: all of its tasks were dropped as broken")
            return
        self.batches.write(found.trajectories)  # again with their advantages, once there are any
        allowed = self.versions.allowed(step, self.config.trainer.max_staleness_steps)
        try:
            metrics = await train_step(self._trainable(found, allowed), step, self.job, self.config, self.versions)
        except DrydockError as error:
            self.diagnosis.stop_if_known(step, error)
            raise
        finally:
            self.batches.write(found.trajectories)
        audited = audit_trajectories(found.trajectories)
        metrics |= {
            "tokens/retokenized": audited.retokenized_tokens,
            "tokens/unrecorded": audited.unrecorded_tokens,
            "tokens/wrong_logprobs": audited.wrong_logprobs,
            "generate/unexplained_branches": audited.unexplained_branches,
            "tasks/dropped": len(self.collector.memory.dropped),
            "timing/rollouts": found.seconds,
            "timing/generate": generated - started,
            "timing/step": time.monotonic() - started,
            **await self.usage.since_last(),
        }
        findings = self.diagnosis.check(StepFacts(step, metrics, found.trajectories, allowed))
        metrics |= diagnosis_metrics(findings)
        MetricsFile(self.folder.metrics).write(step, metrics)
        await self._draw()
        self.progress.note(_step_line(step, self.plan.steps, metrics))
        self.diagnosis.stop_if_told(findings)

    def _trainable(self, found: StepRollouts, allowed: Sequence[int]) -> StepRollouts:
        """The step without anything to train, where turns of another policy are about to stop the run."""
        versions = set[int]().union(*map(versions_of, found.trajectories))
        stops = self.config.diagnosis.policy_version == "stop" and not versions <= set(allowed)
        return replace(found, tasks=[]) if stops else found

    async def _evaluate(self, step: int) -> None:
        started = time.monotonic()
        samples = self.config.generator.eval_n_samples_per_prompt
        tasks = self.plan.eval_tasks
        with self.progress.counted(f"evaluation at step {step}: rollouts", len(tasks) * samples) as counter:
            groups = self.batches.groups(tasks, step, "eval", samples)
            result = await self.batches.run(self.eval_pool, groups, counter.advance)
        self.batches.write(result.trajectories)
        metrics = evaluation_metrics(result.trajectories, time.monotonic() - started)
        metrics["eval/all/replaced"] = len(result.replaced)
        metrics |= await self.usage.since_last()
        MetricsFile(self.folder.metrics).write(step, metrics)
        await self._draw()
        score = metrics["eval/all/avg_score"]
        shown = "no rollout was graded" if score is None else f"mean score {score:.3f}"
        masked = f", masked {amount(metrics['eval/all/masked'], 'rollout')}" if metrics["eval/all/masked"] else ""
        self.progress.note(f"evaluation at step {step}: {shown} over {amount(len(tasks), 'task')}{masked}")

    async def _save(self, step: int, checkpoint_type: str) -> None:
        self.progress.waiting(f"the checkpoint of step {step} to be written")
        saved = await self.job.save(checkpoint_type)
        log.info("checkpoint of step %d: %s", step, saved.details)
        kept = await keep_checkpoint(saved.details, self.folder.checkpoint(step))
        if checkpoint_type == "resumable":
            self._resume_point(saved.checkpoint_id, step).write(self.folder)
            await self._forget_old_checkpoints()
        self.progress.note(f"checkpoint of step {step}: {kept or saved.checkpoint_id}")

    def _resume_point(self, checkpoint_id: str, step: int) -> ResumePoint:
        spare, memory = self.collector.spare, self.collector.memory
        return ResumePoint(
            job_id=self.job.job_id,
            checkpoint_id=checkpoint_id,
            step=step,
            version=self.job.version,
            spare_passes=spare.passes,
            spare_queue=[task.name for task in spare.queue],
            strikes=memory.strikes,
            tasks=[task.name for task in self.plan.train_tasks],
        )

    async def _forget_old_checkpoints(self) -> None:
        """Keep the newest `trainer.max_ckpts_to_keep` in the run's folder, as the service does in its own."""
        limit = self.config.trainer.max_ckpts_to_keep
        for step in self.folder.resumable_steps()[:-limit] if limit else []:
            self.folder.resume_point_of(step).unlink()
            await asyncio.to_thread(shutil.rmtree, self.folder.checkpoint(step), ignore_errors=True)

    async def _save_on_stop(self) -> None:
        """Save what the last whole step left; nothing where there is none, or a step had begun to change weights."""
        step, limit = self.trained, self.config.deadlines.save_on_stop_s
        if not step or step in self.folder.resumable_steps():
            return
        if (self.versions.step, self.versions.latest) != (step, self.job.version):
            self.progress.note(f"no checkpoint is saved: the updates of step {step + 1} had begun")
            return
        try:
            async with deadline("the checkpoint to be written after the stop", limit):
                await self._save(step, "resumable")
        except DrydockError as error:
            log.exception("no checkpoint was saved after the stop")
            self.progress.note(f"no checkpoint is saved: {error}")

    async def _draw(self) -> None:
        curve = RewardCurve.from_metrics(MetricsFile(self.folder.metrics).read())
        title, folder = self.config.trainer.run_name, self.folder
        await asyncio.to_thread(draw_reward_graph, curve, title, folder.graph_svg, folder.graph_png)


def _step_line(step: int, steps: int, metrics: dict) -> str:
    reward = metrics["reward/avg_raw_reward"]
    if metrics["policy/updates"]:
        update = f"mismatch {metrics['mismatch/logprob_diff_max']:.1e}"
    elif metrics["reward/groups_with_signal"]:
        update = "no update: no rollout of a group with different rewards has a token to train"
    else:
        update = "no update: in each group all rewards are equal"
    replaced = f"  replaced {metrics['rollouts/replaced']}" if metrics["rollouts/replaced"] else ""
    return (
        f"step {step:>3} of {steps}  reward {reward:.3f}  graded {metrics['rollouts/graded']}"
        f"  masked {metrics['rollouts/masked']}{replaced}  {update}"
        f"  {metrics['timing/generate']:.1f} + {metrics['timing/train_critic_and_policy']:.1f} s"
    )
