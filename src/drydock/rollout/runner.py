"""What the training loop knows of whatever runs its rollouts: `run`, with slots and second chances.

Where a single attempt is made is the business of who implements `attempt`: in this process (`rollout.pool`), or in one
of several (`rollout.shards`).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from drydock.errors import RolloutShardError
from drydock.rollout.replacement import Replacements
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory

log = logging.getLogger(__name__)

OnDone = Callable[[Trajectory], Awaitable[None] | None]


class RolloutRunner(ABC):
    """Many rollouts at once, a limited number at a time.

    Structured: `run` returns when every rollout it started is over, and a cancellation of `run` returns only after each
    of them has stopped its sandbox. A rollout never fails (see `run_rollout`), so one cannot take the others down; an
    error in `on_done` or in Drydock itself can, and then cancels the rest.
    """

    def __init__(self, concurrency: int) -> None:
        """concurrency: attempts at the same time, over all calls of `run`."""
        self._slots = asyncio.Semaphore(concurrency)

    @abstractmethod
    async def attempt(self, spec: RolloutSpec, out_dir: Path | None = None) -> Trajectory:
        """Make one attempt, at once; with `out_dir`, write its trajectory there, also that of one that is cancelled."""

    async def run(
        self,
        specs: Sequence[RolloutSpec],
        *,
        out_dir: Path | None = None,
        on_done: OnDone | None = None,
        replacements: Replacements | None = None,
    ) -> list[Trajectory]:
        """Run all of `specs` and return their trajectories in the same order.

        on_done: called (and awaited, if it returns an awaitable) as soon as a rollout is over for good.
        replacements: which of those that broke are run again at once; the trajectory is then the last one's.
        Raises RolloutShardError when there is no process left to run them, else a group of errors.
        """
        fresh = replacements or Replacements(budget=0)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._one(spec, out_dir, on_done, fresh), name=f"rollout-{spec.rollout_id}")
                    for spec in specs
                ]
        except* RolloutShardError as errors:  # of several rollouts, all of which say the same
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(
        self, spec: RolloutSpec, out_dir: Path | None, on_done: OnDone | None, fresh: Replacements
    ) -> Trajectory:
        async with self._slots:
            trajectory = await self.attempt(spec, out_dir)
        while fresh.take(trajectory):
            log.info("%s is run again: %s: %s", spec.rollout_id, trajectory.outcome, trajectory.error)
            if out_dir is not None:
                await asyncio.to_thread(trajectory.write, out_dir)
            await asyncio.sleep(fresh.pause_s(trajectory.attempt))
            spec = spec.fresh()
            async with self._slots:
                trajectory = await self.attempt(spec, out_dir)
        if on_done is not None:
            waiting = on_done(trajectory)
            if waiting is not None:
                await waiting
        return trajectory
