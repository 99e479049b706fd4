"""One shard over all of its lives: started, and started again when it dies."""

import asyncio
import logging
import time
from pathlib import Path

from drydock.errors import RolloutShardError
from drydock.rollout.shards.launch import ShardLaunch
from drydock.rollout.shards.lost import lost_trajectory
from drydock.rollout.shards.process import ShardDied, ShardProcess
from drydock.rollout.shards.spawn import log_file
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.sandbox.uncancelled import to_its_end

log = logging.getLogger(__name__)

RESTARTS = 3
"""How often a shard is started again without having finished a rollout in between."""


class Shard:
    """Makes attempts in a process of its own; `running` says how many it was given and has not answered."""

    def __init__(self, launch: ShardLaunch, number: int) -> None:
        self.running = 0
        self._launch = launch
        self._number = number
        self._starting = asyncio.Lock()
        self._process: ShardProcess | None = None
        self._deaths = 0

    async def start(self) -> ShardProcess:
        """The living process, started if need be.

        Raises RolloutShardError when it died too often, UserError with what it found wrong, DeadlineExceeded.
        """
        async with self._starting:
            said = ""
            while self._process is None or not self._process.alive:
                if self._process is not None:
                    said = f"; it {self._process.ending}"
                    await self.stop()
                    self._deaths += 1
                if self._deaths > RESTARTS:
                    raise RolloutShardError(
                        f"rollout shard {self._number} died {self._deaths} times and finished no rollout in between"
                        f"{said}; see {log_file(self._launch, self._number)}"
                    )
                if self._deaths:
                    log.warning("rollout shard %d is started again (%d of %d)", self._number, self._deaths, RESTARTS)
                self._process = await ShardProcess.start(self._launch, self._number)
                await self._until_ready(self._process)
            return self._process

    async def attempt(self, pool: str, spec: RolloutSpec, out_dir: Path | None) -> Trajectory:
        """Make an attempt; one that is lost with its process is a trajectory that says so."""
        self.running += 1
        try:
            process = await self.start()
            began = time.perf_counter()
            try:
                trajectory = await process.run(pool, spec, out_dir)
            except ShardDied as died:
                seconds = time.perf_counter() - began
                trajectory = await asyncio.to_thread(lost_trajectory, spec, died, self._launch.turn_logs, seconds)
                if out_dir is not None:
                    await asyncio.to_thread(trajectory.write, out_dir)
            else:
                self._deaths = 0
            return trajectory
        finally:
            self.running -= 1

    async def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            await to_its_end(process.stop())

    async def _until_ready(self, process: ShardProcess) -> None:
        try:
            await process.ready()
        except ShardDied:
            pass  # the next look at it finds it dead
        except BaseException:
            await self.stop()
            raise
