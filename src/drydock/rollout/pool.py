"""Rollouts in this process, one event loop for all of them."""

import asyncio
import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drydock.proxy.chat_session import SessionOpener
from drydock.rollout.run import run_rollout
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.rollout.trial_config import kills_leftovers, load_classes

log = logging.getLogger(__name__)


class RolloutPool(RolloutRunner):
    """Runs rollouts with one setting against one proxy, at most `concurrency` of them at the same time.

    Raises UserError when the agent or the sandbox cannot be loaded or the agent refuses its settings.
    """

    def __init__(self, settings: RolloutSettings, proxy: SessionOpener, concurrency: int) -> None:
        super().__init__(concurrency)
        load_classes(settings)
        if not kills_leftovers(settings):
            _warn_of_leftovers(settings.environment)
        self._settings = settings
        self._proxy = proxy

    async def attempt(self, spec: RolloutSpec, out_dir: Path | None = None) -> Trajectory:
        return await run_rollout(spec, self._settings, self._proxy, out_dir)


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
