"""Many rollouts at once, a limited number at a time.

Structured: `run` returns when every rollout it started is over, and a cancellation of `run` returns only after each of
them has stopped its sandbox. A rollout never fails (see `run_rollout`), so one cannot take the others down; an error in
`on_done` or in Drydock itself can, and then cancels the rest.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drydock.proxy.server import ChatProxy
from drydock.rollout.replacement import Replacements
from drydock.rollout.run import run_rollout
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.rollout.trial_config import kills_leftovers, load_classes

log = logging.getLogger(__name__)

OnDone = Callable[[Trajectory], Awaitable[None] | None]


class RolloutPool:
    """Runs rollouts with one setting against one proxy, at most `concurrency` of them at the same time.

    Raises UserError when the agent or the sandbox cannot be loaded or the agent refuses its settings.
    """

    def __init__(self, settings: RolloutSettings, proxy: ChatProxy, concurrency: int) -> None:
        load_classes(settings)
        if not kills_leftovers(settings):
            _warn_of_leftovers(settings.environment)
        self._settings = settings
        self._proxy = proxy
        self._slots = asyncio.Semaphore(concurrency)

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
        """
        fresh = replacements or Replacements(budget=0)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._one(spec, out_dir, on_done, fresh), name=f"rollout-{spec.rollout_id}")
                for spec in specs
            ]
        return [task.result() for task in tasks]

    async def _one(
        self, spec: RolloutSpec, out_dir: Path | None, on_done: OnDone | None, fresh: Replacements
    ) -> Trajectory:
        async with self._slots:
            trajectory = await run_rollout(spec, self._settings, self._proxy, out_dir)
        while fresh.take(trajectory):
            log.info("%s is run again: %s: %s", spec.rollout_id, trajectory.outcome, trajectory.error)
            if out_dir is not None:
                await asyncio.to_thread(trajectory.write, out_dir)
            await asyncio.sleep(fresh.pause_s(trajectory.attempt))
            spec = spec.fresh()
            async with self._slots:
                trajectory = await run_rollout(spec, self._settings, self._proxy, out_dir)
        if on_done is not None:
            waiting = on_done(trajectory)
            if waiting is not None:
                await waiting
        return trajectory


def size_default_executor(concurrency: int) -> None:
    """Give the running loop a thread pool that `concurrency` rollouts cannot exhaust; call it once at start.

    Python's default is 4 threads more than there are processors, and Harbor, the SDK and sandboxes all wait in it.
    """
    threads = max(16, 2 * concurrency)
    pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="drydock")
    asyncio.get_running_loop().set_default_executor(pool)


@functools.cache
def _warn_of_leftovers(environment: str) -> None:
    """Say, once per process and sandbox, that the grading is not protected from what the agent left running."""
    log.warning(
        "the sandbox %s cannot kill processes: what an agent leaves running goes on while its rollout is graded, and "
        "can change the result",
        environment,
    )
