"""A shard of a run: `python -m drydock.training.rollout_shard`, started by `rollout_pools` only.

It is in the user namespace that its driver entered, as every child of the driver.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from drydock.chat.template import ChatTemplate
from drydock.client import TrainingClient
from drydock.rollout.pool import RolloutPool, size_default_executor
from drydock.rollout.shards import run_shard
from drydock.training.rollout_pools import ShardSetup, pools_here


@asynccontextmanager
async def open_pools(payload: bytes) -> AsyncIterator[Mapping[str, RolloutPool]]:
    """The pools that a `ShardSetup` tells of."""
    setup = ShardSetup.model_validate_json(payload)
    size_default_executor(setup.pools.concurrency)
    template = ChatTemplate.load(setup.pools.model)
    async with TrainingClient.of(setup.service) as client, pools_here(setup.pools, template, client) as pools:
        yield pools


if __name__ == "__main__":
    run_shard(open_pools)
