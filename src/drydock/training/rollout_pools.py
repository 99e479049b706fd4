"""The pools that run a run's rollouts, one for training and one for evaluation: here, or in shards.

Both are made of the same data, `PoolSetup`. In shards (`generator.rollouts_per_process`) each process has a client, a
chat proxy and a thread pool of its own, and its share of the rollouts and of the calls at the sampler. A weight sync
needs nothing of them, since each turn carries the policy version that it was sampled by.
"""

import math
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from drydock.chat.reply_reader import ReplyReader, reader_for, reader_named
from drydock.chat.template import ChatTemplate
from drydock.client import ServiceAccess, TrainingClient
from drydock.proxy.server import ChatProxy
from drydock.proxy.service_sampler import ServiceSampler
from drydock.proxy.settings import ProxySettings
from drydock.rollout.pool import RolloutPool
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.settings import SANDBOXES, RolloutSettings
from drydock.rollout.shards import RolloutShards, ShardLaunch, ShardLimits, shares
from drydock.sandbox.reaper import reap

SHARD = (sys.executable, "-m", "drydock.training.rollout_shard")

CANCEL_GRACE_S = 15.0
"""How much longer than a rollout may take to remove its sandbox a cancellation waits for its shard to say so."""


class PoolSetup(BaseModel):
    """What pools are made of.

    model: hub id or folder of the policy, for its chat template. tool_call_format: None for the template's.
    proxies: of each pool, by name, the settings of its chat proxy. concurrency: rollouts at the same time.
    sampling_call_s: longest wait for one turn.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: str
    tool_call_format: str | None
    rollouts: RolloutSettings
    proxies: dict[str, ProxySettings]
    concurrency: int
    job_id: str
    sampling_call_s: float

    def shard_count(self, rollouts_per_process: int) -> int:
        """How many processes it takes: 1, or as many as needed, each with at least one call at the sampler."""
        calls = min(settings.max_concurrent_calls for settings in self.proxies.values())
        return min(math.ceil(self.concurrency / rollouts_per_process), calls)

    def split(self, count: int) -> "list[PoolSetup]":
        """The same for each of `count` shards, with its share of rollouts and calls."""
        calls = {name: shares(settings.max_concurrent_calls, count) for name, settings in self.proxies.items()}
        return [
            self.model_copy(
                update={
                    "concurrency": concurrency,
                    "proxies": {
                        name: settings.model_copy(update={"max_concurrent_calls": calls[name][number]})
                        for name, settings in self.proxies.items()
                    },
                }
            )
            for number, concurrency in enumerate(shares(self.concurrency, count))
        ]


def policy_reader(template: ChatTemplate, tool_call_format: str | None) -> ReplyReader:
    """What reads the policy's turns: by the format that is named, or else the template's."""
    return reader_for(template) if tool_call_format is None else reader_named(tool_call_format, template)


class ShardSetup(BaseModel):
    """What a shard is told over its link; holds the service's token."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    pools: PoolSetup
    service: ServiceAccess


@asynccontextmanager
async def pools_here(
    setup: PoolSetup, template: ChatTemplate, client: TrainingClient
) -> AsyncIterator[Mapping[str, RolloutPool]]:
    """Pools of this process by name, and their chat proxies, which are closed on exit."""
    sampler = ServiceSampler(client, setup.job_id, deadline_s=setup.sampling_call_s)
    reader = policy_reader(template, setup.tool_call_format)
    async with AsyncExitStack() as stack:
        pools = {}
        for name, settings in setup.proxies.items():
            proxy = await stack.enter_async_context(ChatProxy(template, reader, sampler, settings))
            pools[name] = RolloutPool(setup.rollouts, proxy, setup.concurrency)
        yield pools


@asynccontextmanager
async def pools_in_shards(
    setup: PoolSetup, count: int, client: TrainingClient, log_dir: Path
) -> AsyncIterator[Mapping[str, RolloutRunner]]:
    """The same in `count` processes, which are gone on exit.

    log_dir: where they log. Raises UserError or RolloutShardError with what keeps them from starting.
    """
    parts = [ShardSetup(pools=pools, service=client.access) for pools in setup.split(count)]
    launch = ShardLaunch(
        command=SHARD,
        setups=[part.model_dump_json().encode() for part in parts],
        log_dir=log_dir,
        turn_logs=next(iter(setup.proxies.values())).turn_log,
        after_death=_reaper(setup.rollouts),
        limits=ShardLimits(cancel_s=setup.rollouts.deadlines.cleanup_s + CANCEL_GRACE_S),
    )
    async with RolloutShards(launch) as shards:
        yield {name: shards.pool(name, setup.concurrency) for name in setup.proxies}


def _reaper(rollouts: RolloutSettings) -> partial[list[str]] | None:
    """What removes the traces of a dead shard's sandboxes, where they are Drydock's own."""
    state_dir = rollouts.environment_kwargs.get("state_dir")
    own = rollouts.environment in SANDBOXES and state_dir is not None
    return partial(reap, Path(str(state_dir))) if own else None
