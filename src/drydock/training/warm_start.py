"""Supervised fine-tuning on demonstrations before reinforcement learning, through the same API."""

import logging
from collections.abc import Callable, Sequence

from drydock.training.batch import Row
from drydock.training.config import WarmStartStage
from drydock.training.policy_job import PolicyJob
from drydock.training.sft.batches import shuffled_batches
from drydock.training.sft.packing import supervised_batch

log = logging.getLogger(__name__)
LOG_EVERY = 20


async def run_stage(
    stage: WarmStartStage, rows: Sequence[Row], job: PolicyJob, seed: str, advance: Callable[[], None]
) -> float:
    """Train the stage's steps on batches drawn without replacement from shuffled passes; the last step's loss."""
    batches = shuffled_batches(rows, stage.batch_size, seed)
    loss = float("nan")
    for index in range(stage.steps):
        metrics = await job.forward_backward(supervised_batch(next(batches)))
        loss = metrics["loss"]
        await job.step(_rate(stage, index))
        advance()
        if (index + 1) % LOG_EVERY == 0 or index + 1 == stage.steps:
            log.info("warm start %s: step %d of %d, loss %.4f", stage.conversations.stem, index + 1, stage.steps, loss)
    return loss


def _rate(stage: WarmStartStage, index: int) -> float:
    final = stage.lr if stage.lr_final is None else stage.lr_final
    return stage.lr + (final - stage.lr) * index / max(1, stage.steps - 1)
