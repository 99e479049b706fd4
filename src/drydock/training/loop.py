"""The run: evaluate, warm-start, train step after step, evaluate again.

The loop knows no process, port or signal: those belong to `launch.py`, which hands it a job, a rollout pool and a
folder. It writes everything as it goes, so that a run that is stopped keeps all that it computed.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drydock.chat.template import ChatTemplate
from drydock.report.curve import RewardCurve
from drydock.report.metrics import MetricsFile
from drydock.report.progress import RunProgress
from drydock.report.reward_graph import draw_reward_graph
from drydock.rollout.pool import RolloutPool
from drydock.rollout.replacement import Replacements
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.training.causes import dominant_cause
from drydock.training.config import RunConfig
from drydock.training.demonstrations import read_demonstrations, supervised_rows
from drydock.training.evaluation import evaluation_metrics
from drydock.training.group_rollouts import NoGradedRollout
from drydock.training.plan import RunPlan
from drydock.training.policy_job import PolicyJob
from drydock.training.run_audit import audit_trajectories
from drydock.training.run_folder import RunFolder, Split, keep_checkpoint
from drydock.training.task_memory import TaskMemory
from drydock.training.task_set import Task
from drydock.training.train_step import train_step
from drydock.training.warm_start import run_stage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TrainingLoop:
    """One run's loop over a live job and rollout pool."""

    config: RunConfig
    plan: RunPlan
    folder: RunFolder
    job: PolicyJob
    pool: RolloutPool
    eval_pool: RolloutPool
    template: ChatTemplate
    system_prompt: str
    tools: list[dict]
    progress: RunProgress
    memory: TaskMemory

    async def run(self) -> None:
        """The whole run; metrics, trajectories and the graph are on disk when it returns."""
        trainer = self.config.trainer
        await self._warm_start()
        if trainer.eval_before_train:
            await self._evaluate(0)
        last = 0
        for last, tasks in enumerate(self.plan.batches, start=1):
            await self._train(last, tasks)
            due = trainer.eval_interval and last % trainer.eval_interval == 0
            if due and not (last == self.plan.steps and trainer.eval_after_train):
                await self._evaluate(last)
            if trainer.ckpt_interval and last % trainer.ckpt_interval == 0:
                await self._save(last, "resumable")
        if trainer.eval_after_train:
            await self._evaluate(last)
        if trainer.save_final_checkpoint:
            await self._save(last, "weights-only")

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
            self.progress.note(f"{name}: {stage.steps} steps in {seconds:.0f} s, loss {loss:.3f}")
        if self.config.warm_start:
            self.progress.waiting("the sampler to take the warm-started weights")
            await self.job.sync()

    async def _train(self, step: int, tasks: Sequence[Task]) -> None:
        tasks = self.memory.still_used(tasks)
        if not self.memory.still_used(self.plan.train_tasks):
            raise NoGradedRollout(f"every task of data.train was dropped as broken; see {self.folder.dropped_tasks}")
        if not tasks:
            self.progress.note(f"step {step} of {self.plan.steps} is left out: all of its tasks were dropped as broken")
            return
        group = self.config.generator.n_samples_per_prompt
        replaced: list[Trajectory] = []

        async def rollouts(tasks: Sequence[Task], step: int, attempt: int) -> list[Trajectory]:
            total = len(tasks) * group
            again = f", attempt {attempt + 1}" if attempt else ""
            with self.progress.counted(f"step {step} of {self.plan.steps}{again}: rollouts", total) as counter:
                specs = self._specs(tasks, step, "train", group, attempt)
                trajectories = await self._finished(self.pool, specs, counter.advance, replaced)
            if all(trajectory.masked for trajectory in trajectories):
                cause = dominant_cause(trajectories)
                self.progress.note(f"step {step}, attempt {attempt + 1}: no rollout was graded: {cause}")
            return trajectories

        try:
            result = await train_step(tasks, step, self.job, self.config, rollouts, self.memory)
        finally:
            for gone in self.memory.dropped.values():
                if gone.step == step:
                    self.progress.note(f"task {gone.task} is dropped as broken: {gone.cause}; see {gone.path}")
        self._write_trajectories(result.trajectories)
        audited = audit_trajectories(result.trajectories)
        metrics = result.metrics | {
            "rollouts/replaced": len(replaced),
            "tokens/retokenized": audited.retokenized_tokens,
            "tokens/unrecorded": audited.unrecorded_tokens,
            "tokens/wrong_logprobs": audited.wrong_logprobs,
            "generate/unexplained_branches": audited.unexplained_branches,
        }
        MetricsFile(self.folder.metrics).write(step, metrics)
        await self._draw()
        self.progress.note(_step_line(step, self.plan.steps, metrics))

    async def _evaluate(self, step: int) -> None:
        started = time.monotonic()
        samples = self.config.generator.eval_n_samples_per_prompt
        tasks = self.plan.eval_tasks
        with self.progress.counted(f"evaluation at step {step}: rollouts", len(tasks) * samples) as counter:
            specs = self._specs(tasks, step, "eval", samples, 0)
            replaced: list[Trajectory] = []
            trajectories = await self._finished(self.eval_pool, specs, counter.advance, replaced)
        self._write_trajectories(trajectories)
        metrics = evaluation_metrics(trajectories, time.monotonic() - started)
        metrics["eval/all/replaced"] = len(replaced)
        MetricsFile(self.folder.metrics).write(step, metrics)
        await self._draw()
        score = metrics["eval/all/avg_score"]
        shown = "no rollout was graded" if score is None else f"mean score {score:.3f}"
        masked = f", masked {metrics['eval/all/masked']} rollouts" if metrics["eval/all/masked"] else ""
        self.progress.note(f"evaluation at step {step}: {shown} over {len(tasks)} tasks{masked}")

    async def _save(self, step: int, checkpoint_type: str) -> None:
        self.progress.waiting(f"the checkpoint of step {step} to be written")
        saved = await self.job.save(checkpoint_type)
        log.info("checkpoint of step %d: %s", step, saved.details)
        kept = await keep_checkpoint(saved.details, self.folder.checkpoint(step))
        self.progress.note(f"checkpoint of step {step}: {kept or saved.checkpoint_id}")

    def _specs(self, tasks: Sequence[Task], step: int, split: Split, samples: int, attempt: int) -> list[RolloutSpec]:
        prefix = f"{self.config.trainer.run_name}-{split}-{step}" + (f"-try{attempt}" if attempt else "")
        return [
            RolloutSpec(
                task=task.name,
                task_path=task.path,
                rollout_id=f"{prefix}-{task.name}-{repetition}",
                step=step,
                split=split,
                repetition=repetition,
            )
            for task in tasks
            for repetition in range(samples)
        ]

    async def _finished(
        self,
        pool: RolloutPool,
        specs: Sequence[RolloutSpec],
        advance: Callable[[], None],
        replaced: list[Trajectory],
    ) -> list[Trajectory]:
        """Run `specs`; those that were replaced by fresh ones are added to `replaced`.

        What nothing more comes of is written at once: rollouts without a reward, all of them when the run is stopped.
        """
        done: list[Trajectory] = []
        generator = self.config.generator
        budget = math.ceil(generator.replacement_share * len(specs))
        fresh = Replacements(budget, generator.replacements_per_rollout)

        def note(trajectory: Trajectory) -> None:
            done.append(trajectory)
            advance()

        try:
            return await pool.run(specs, on_done=note, replacements=fresh)
        finally:
            replaced += fresh.replaced
            stopped = len(done) < len(specs)
            self._write_trajectories([*fresh.replaced, *(one for one in done if stopped or one.masked)])

    def _write_trajectories(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            trajectory.write(self.folder.trajectories(trajectory.step, trajectory.split))
            self.folder.turn_log(trajectory.rollout_id).unlink(missing_ok=True)

    async def _draw(self) -> None:
        curve = RewardCurve.from_metrics(MetricsFile(self.folder.metrics).read())
        title, folder = self.config.trainer.run_name, self.folder
        await asyncio.to_thread(draw_reward_graph, curve, title, folder.graph_svg, folder.graph_png)


def _step_line(step: int, steps: int, metrics: dict) -> str:
    reward = metrics["reward/avg_raw_reward"]
    if metrics["policy/updates"]:
        update = f"mismatch {metrics['mismatch/logprob_diff_max']:.1e}"
    else:
        update = "no update: in each group all rewards are equal"
    replaced = f"  replaced {metrics['rollouts/replaced']}" if metrics["rollouts/replaced"] else ""
    return (
        f"step {step:>3} of {steps}  reward {reward:.3f}  graded {metrics['rollouts/graded']}"
        f"  masked {metrics['rollouts/masked']}{replaced}  {update}"
        f"  {metrics['timing/generate']:.1f} + {metrics['timing/train_critic_and_policy']:.1f} s"
    )
