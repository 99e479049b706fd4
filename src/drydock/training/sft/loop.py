"""The supervised run: evaluate, train step after step, save, evaluate again.

Everything that a step does follows from its number, the seed and the data, so a run that goes on from a checkpoint ends
with the weights of one that was not stopped. It writes as it goes.
"""

import asyncio
import itertools
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

from drydock.amount import amount
from drydock.engine.optimizer_settings import ScheduleConfig
from drydock.engine.schedules import rate_factor
from drydock.report.loss_graph import LossCurve, draw_loss_graph
from drydock.report.metrics import MetricsFile
from drydock.report.progress import Counter, RunProgress
from drydock.report.run_marks import STEPS
from drydock.training.batch import Row
from drydock.training.run_folder import RunFolder, keep_checkpoint
from drydock.training.sft.batches import batches_a_pass, shuffled_batches
from drydock.training.sft.config import SftConfig
from drydock.training.sft.data import SftData
from drydock.training.sft.job import SftJob
from drydock.training.sft.packing import supervised_batch
from drydock.training.sft.resume import ResumePoint

log = logging.getLogger(__name__)
DRAW_EVERY_S = 5.0


@dataclass(slots=True)
class SftLoop:
    """One run's loop over a live job. first: steps that its job had taken when it was made."""

    config: SftConfig
    data: SftData
    folder: RunFolder
    job: SftJob
    progress: RunProgress
    first: int = 0

    async def run(self) -> None:
        """The rest of the run; metrics, checkpoints and the graph are on disk when it returns."""
        trainer, steps = self.config.trainer, total_steps(self.config, len(self.data.train))
        log.info("%s %d", STEPS, steps)
        if trainer.eval_before_train and self.first == 0:
            await self._evaluate(0)
        batches = shuffled_batches(self.data.train, trainer.train_batch_size, f"sft/{trainer.seed}")
        drawn = time.monotonic()
        counter = None
        for step, rows in enumerate(itertools.islice(batches, self.first, steps), start=self.first + 1):
            counter = counter or self._counter(step - 1, steps)
            await self._train(step, steps, rows)
            counter.advance()
            if self._evaluates_after(step, steps):
                await self._evaluate(step)
                counter = None
            if trainer.ckpt_interval and step % trainer.ckpt_interval == 0:
                await self._save(step, "resumable")
                counter = None
            if time.monotonic() - drawn > DRAW_EVERY_S:
                await self._draw()
                drawn = time.monotonic()
        await self._draw()
        if trainer.save_final_checkpoint and not self._saved_whole(steps):
            await self._save(steps, "weights-only")

    def _saved_whole(self, step: int) -> bool:
        """Whether this part of the run has saved the step already, as a folder that is a model (or an adapter).

        A resumable checkpoint is one; where the adapter is to be merged, the final checkpoint is another thing.
        """
        interval = self.config.trainer.ckpt_interval
        return bool(self.first < step and interval and step % interval == 0) and not self.config.merges_adapter

    def _evaluates_after(self, step: int, steps: int) -> bool:
        trainer = self.config.trainer
        due = trainer.eval_interval and step % trainer.eval_interval == 0
        return bool(self.data.evaluation and (due or (step == steps and trainer.eval_after_train)))

    def _counter(self, done: int, steps: int) -> Counter:
        """A bar that stands at `done`; other waits take its place."""
        with self.progress.counted(f"training, from step {done + 1} of {steps}", steps) as counter:
            for _ in range(done):
                counter.advance()
        return counter

    async def _train(self, step: int, steps: int, rows: Sequence[Row]) -> None:
        started = time.monotonic()
        rate = scheduled_rate(self.config, step, steps)
        result = await self.job.train(supervised_batch(rows, self._budget), rate, step)
        MetricsFile(self.folder.metrics).write(
            step,
            {
                "train/loss": result["loss"],
                "train/trained_tokens": sum(row.trained_tokens for row in rows),
                "train/tokens": sum(len(row.token_ids) for row in rows),
                "train/epoch": step / batches_a_pass(len(self.data.train), self.config.trainer.train_batch_size),
                "policy/policy_lr": rate,
                "policy/raw_grad_norm": result["grad_norm"],
                "timing/step": time.monotonic() - started,
            },
        )

    async def _evaluate(self, step: int) -> None:
        """Mean loss over all trained tokens of the held-out conversations."""
        started = time.monotonic()
        self.progress.waiting(f"the evaluation at step {step}")
        total, tokens = 0.0, 0
        size = self.config.trainer.train_batch_size
        for start in range(0, len(self.data.evaluation), size):
            batch = supervised_batch(self.data.evaluation[start : start + size], self._budget)
            mask = batch["context"]["loss_mask"]
            total -= float((await self.job.logprobs(batch) * mask).sum(dtype="float64"))
            tokens += int(mask.sum())
        loss = total / max(1, tokens)
        metrics = {"eval/loss": loss, "eval/trained_tokens": tokens, "timing/eval": time.monotonic() - started}
        MetricsFile(self.folder.metrics).write(step, metrics)
        held_out = amount(len(self.data.evaluation), "conversation")
        self.progress.note(f"evaluation at step {step}: loss {loss:.4f} over {held_out}")

    async def _save(self, step: int, checkpoint_type: str) -> None:
        self.progress.waiting(f"the checkpoint of step {step} to be written")
        saved = await self.job.save(checkpoint_type)
        log.info("checkpoint of step %d: %s", step, saved.details)
        if checkpoint_type == "resumable":
            point = ResumePoint(self.job.job_id, saved.checkpoint_id, step, self.data.fingerprint)
            point.write(self.folder.resume_point)
        kept = await keep_checkpoint(saved.details, self.folder.checkpoint(step))
        if kept and self.config.trainer.max_ckpts_to_keep:
            for old in self.folder.saved_checkpoints()[: -self.config.trainer.max_ckpts_to_keep]:
                await asyncio.to_thread(shutil.rmtree, old, ignore_errors=True)
        self.progress.note(f"checkpoint of step {step}: {kept or saved.checkpoint_id}")

    @property
    def _budget(self) -> int | None:
        return self.config.data.max_length if self.config.data.packing else None

    async def _draw(self) -> None:
        curve = LossCurve.from_metrics(MetricsFile(self.folder.metrics).read())
        name, folder = self.config.trainer.run_name, self.folder
        await asyncio.to_thread(draw_loss_graph, curve, name, folder.loss_svg, folder.loss_png)


def total_steps(config: SftConfig, conversations: int) -> int:
    """Steps of the whole run."""
    trainer = config.trainer
    return trainer.max_training_steps or trainer.epochs * batches_a_pass(conversations, trainer.train_batch_size)


def scheduled_rate(config: SftConfig, step: int, steps: int) -> float:
    """The learning rate of a step, counted from 1; a constant one does not depend on `steps`."""
    optimizer = config.trainer.policy.optimizer_config
    if optimizer.scheduler == "constant":
        schedule = ScheduleConfig(warmup_steps=optimizer.num_warmup_steps)
    else:
        schedule = ScheduleConfig(
            name=optimizer.scheduler,
            warmup_steps=min(optimizer.num_warmup_steps, steps - 1),
            total_steps=steps,
            min_lr_ratio=optimizer.min_lr_ratio,
        )
    return optimizer.lr * rate_factor(schedule, step - 1)
