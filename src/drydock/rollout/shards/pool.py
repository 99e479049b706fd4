"""Rollouts in several processes beside each other, each with an event loop, threads and a chat proxy of its own."""

import asyncio
from pathlib import Path
from typing import Self

from drydock.rollout.runner import RolloutRunner
from drydock.rollout.shards.launch import ShardLaunch
from drydock.rollout.shards.shard import Shard
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory


class RolloutShards:
    """The shards of a run, started when its `async with` block begins and gone when it ends.

    Entering raises UserError or RolloutShardError with what keeps a shard from starting, DeadlineExceeded.
    """

    def __init__(self, launch: ShardLaunch) -> None:
        self._shards = [Shard(launch, number) for number in range(len(launch.setups))]

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.TaskGroup() as group:
                for shard in self._shards:
                    group.create_task(shard.start())
        except BaseException as error:
            await self.__aexit__()
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.gather(*(shard.stop() for shard in self._shards))

    def pool(self, name: str, concurrency: int) -> "ShardedPool":
        """A pool over the pools named so in all shards, with `concurrency` rollouts at the same time in all."""
        return ShardedPool(self, name, concurrency)

    async def attempt(self, pool: str, spec: RolloutSpec, out_dir: Path | None) -> Trajectory:
        """Make an attempt in the shard that has least to do."""
        shard = min(self._shards, key=lambda shard: shard.running)
        return await shard.attempt(pool, spec, out_dir)


class ShardedPool(RolloutRunner):
    """Has each rollout run by one of the shards."""

    def __init__(self, shards: RolloutShards, name: str, concurrency: int) -> None:
        super().__init__(concurrency)
        self._shards = shards
        self._name = name

    async def attempt(self, spec: RolloutSpec, out_dir: Path | None = None) -> Trajectory:
        return await self._shards.attempt(self._name, spec, out_dir)
