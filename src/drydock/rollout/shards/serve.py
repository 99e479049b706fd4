"""A shard's side: a process that makes the attempts that its driver tells it to, until the driver is gone.

It ends with its driver in every case. The kernel kills it when the driver dies, and its sandboxes end with it, as those
of any driver that was killed. Where the kernel cannot, and when the driver is done with it, the end of the channel
tells it: then it cancels what still runs, removes the sandboxes and ends.
"""

import argparse
import asyncio
import atexit
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from drydock.errors import DrydockError
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.shards.channel import Channel, ChannelClosed
from drydock.rollout.shards.messages import Alive, Cancel, Cancelled, Done, Failed, Ready, Refused, Run
from drydock.rollout.trajectory import Trajectory
from drydock.service.process_death import die_with_parent

ALIVE_EVERY_S = 5.0
LAST_S = 120.0
"""A shard whose driver is gone ends at the latest after so many seconds, whatever still hangs."""

log = logging.getLogger(__name__)

OpenPools = Callable[[bytes], AbstractAsyncContextManager[Mapping[str, RolloutRunner]]]
"""From the payload of `Setup` to what makes attempts, by name, for as long as the block runs."""


def run_shard(open_pools: OpenPools) -> None:
    """The whole life of a shard; call it from the main module of what `ShardLaunch.command` names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent_pid, signal.SIGKILL)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("drydock").setLevel(logging.INFO)
    over: list[bool] = []
    atexit.register(lambda: over and os._exit(0))  # runs last: freeing all that an agent's SDK imports takes seconds
    asyncio.run(_serve(socket.socket(fileno=options.link_fd), open_pools))
    over.append(True)


async def _serve(link: socket.socket, open_pools: OpenPools) -> None:
    channel = await Channel.over(link)
    try:
        _, setup = await channel.receive()
    except ChannelClosed:
        return
    async with AsyncExitStack() as stack:
        try:
            pools = await stack.enter_async_context(open_pools(setup))
        except DrydockError as error:
            channel.write(Refused(error=str(error), blame=error.blame))
            await channel.flush()
            return
        channel.write(Ready())
        alive = asyncio.create_task(_show_life(channel))
        try:
            await _Attempts(channel, pools).serve()
        finally:
            alive.cancel()


async def _show_life(channel: Channel) -> None:
    while True:
        await asyncio.sleep(ALIVE_EVERY_S)
        channel.write(Alive())


class _Attempts:
    """The rollouts of this shard; each is answered exactly once."""

    def __init__(self, channel: Channel, pools: Mapping[str, RolloutRunner]) -> None:
        self._channel = channel
        self._pools = pools
        self._running: dict[str, asyncio.Task[Trajectory]] = {}

    async def serve(self) -> None:
        """Do what the driver says until it is gone, then cancel everything and return when that is over."""
        try:
            while True:
                message, _ = await self._channel.receive()
                match message:
                    case Run():
                        self._begin(message)
                    case Cancel(rollout_id=rollout_id) if rollout_id in self._running:
                        self._running[rollout_id].cancel()
                    case _:
                        pass  # a cancellation that crossed the rollout's own end
        except ChannelClosed:
            log.info("the driver is gone, or done with this shard: %d rollouts are cancelled", len(self._running))
        finally:
            await self._end()

    def _begin(self, message: Run) -> None:
        rollout_id = message.spec.rollout_id
        attempt = self._pools[message.pool].attempt(message.spec, message.out_dir)
        task = asyncio.ensure_future(attempt)
        self._running[rollout_id] = task
        task.add_done_callback(lambda ended: self._answer(rollout_id, ended))

    def _answer(self, rollout_id: str, ended: asyncio.Task[Trajectory]) -> None:
        del self._running[rollout_id]
        if ended.cancelled():
            self._channel.write(Cancelled(rollout_id=rollout_id))
            return
        try:
            self._channel.write(Done(rollout_id=rollout_id), ended.result().model_dump_json().encode())
        except Exception as error:
            log.exception("rollout %s failed in Drydock itself", rollout_id)
            last = traceback.format_exception_only(error)[-1].strip()
            self._channel.write(Failed(rollout_id=rollout_id, error=last))

    async def _end(self) -> None:
        watchdog = threading.Timer(LAST_S, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
