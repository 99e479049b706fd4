"""A shard whose policy is scripted, and what starts such shards.

python scripted_shard.py --link-fd N --parent-pid P
"""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.policy import by_turn
from pydantic import BaseModel

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.errors import UserError
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.rollout import RolloutPool, RolloutSettings, size_default_executor
from drydock.rollout.shards import ShardLaunch, ShardLimits, run_shard, shares
from drydock.sandbox.reaper import reap

COMMAND = (sys.executable, str(Path(__file__).resolve()))
POOL = "train"


class ScriptedSetup(BaseModel):
    """tokenizer: its folder. replies: turn n of every rollout, the last one repeats.

    refusal: why shards cannot start, if so.
    """

    tokenizer: Path
    replies: list[str]
    rollouts: RolloutSettings
    limits: ProxySettings
    concurrency: int
    delay_s: float = 0.0
    refusal: str = ""


def scripted_shards(
    setup: ScriptedSetup, count: int, log_dir: Path, limits: ShardLimits | None = None, secret: str = ""
) -> ShardLaunch:
    """`count` shards with this setup; `secret` comes with it."""
    parts = [setup.model_copy(update={"concurrency": share}) for share in shares(setup.concurrency, count)]
    state_dir = setup.rollouts.environment_kwargs.get("state_dir")
    return ShardLaunch(
        command=COMMAND,
        setups=[f"{secret}\n{part.model_dump_json()}".encode() for part in parts],
        log_dir=log_dir,
        turn_logs=setup.limits.turn_log,
        after_death=partial(reap, Path(str(state_dir))) if state_dir else None,
        limits=limits or ShardLimits(),
    )


@asynccontextmanager
async def open_pools(payload: bytes) -> AsyncIterator[Mapping[str, RolloutPool]]:
    """The one pool, with its chat proxy."""
    setup = ScriptedSetup.model_validate_json(payload.partition(b"\n")[2])
    if setup.refusal:
        raise UserError(setup.refusal)
    size_default_executor(setup.concurrency)
    template = ChatTemplate.load(setup.tokenizer)
    sampler = by_turn(template, setup.replies, delay_s=setup.delay_s)
    async with ChatProxy(template, HermesParser(), sampler, setup.limits) as proxy:
        pool = RolloutPool(setup.rollouts, proxy, setup.concurrency)
        yield {POOL: pool}


if __name__ == "__main__":
    run_shard(open_pools)
