"""A worker process kept ready to stand in for one that dies.

Most of the time that a restart takes goes into importing torch and transformers (measured: 5 of 6 s on an idle core).
While a running job has a sub-job that is to be restarted (`on_worker_loss`), one process waits that has done so
already and has not been told yet what to be. It is taken once, and the next one is made when the restart is over.
It costs the memory of these imports (about 450 MB). Only where workers get no GPUs: what a process sees of those is
settled before its imports.
"""

import asyncio
import logging
from collections.abc import Sequence

from drydock.errors import WorkerLost
from drydock.service.channel import ChannelClosed, Message
from drydock.service.worker_process import AttachedProcess, WorkerProcess
from drydock.service.worker_spec import WorkerLimits

logger = logging.getLogger(__name__)


class Standby:
    """At most one process. Owner: `Jobs`, which drops it before it stops."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._hardware: str | None = None
        self._making: asyncio.Task[AttachedProcess | None] | None = None
        self._process: WorkerProcess | None = None
        self._dropped = False

    def prepare(self, hardware: str | None, devices: Sequence[int]) -> None:
        """Begins to make a process for this type, unless there is one already."""
        if devices or (self._making is not None and not self._failed()):
            return
        self._hardware = hardware
        self._dropped = False
        self._making = asyncio.create_task(self._make(hardware), name="standby worker")

    async def take(self, hardware: str | None, devices: Sequence[int]) -> AttachedProcess | None:
        """Gives the process away; None when there is none that would do."""
        making = self._making
        if making is None or devices or hardware != self._hardware:
            return None
        made = await asyncio.shield(making)
        if self._making is not making:
            return None
        self._making = self._process = None
        return made if made is not None and made.process.alive else None

    async def drop(self) -> None:
        """Kills the process; returns when it is gone."""
        making = self._making
        if making is None:
            return
        self._dropped = True
        if self._process is not None:
            self._process.kill()
        made = await asyncio.shield(making)
        if self._making is not making:
            return
        self._making = self._process = None
        if made is not None:
            await _end(made)

    def _failed(self) -> bool:
        assert self._making is not None
        if not self._making.done():
            return False
        made = self._making.result()
        return made is None or not made.process.alive

    async def _make(self, hardware: str | None) -> AttachedProcess | None:
        try:
            process = await WorkerProcess.start_unnamed(self._limits, hardware)
        except OSError as error:
            logger.warning("no worker process could be made ready: %s", error)
            return None
        self._process = process
        if self._dropped:
            process.kill()
        try:
            channel, _ = await process.attach()
            await channel.send(Message({"op": "prepare"}))
        except (WorkerLost, ChannelClosed) as error:
            if not self._dropped:
                logger.warning("a worker process that was to be kept ready is gone: %s", error)
            process.kill()
            await process.ended()
            return None
        return AttachedProcess(process, channel)


async def _end(made: AttachedProcess) -> None:
    made.process.kill()
    await made.process.ended()
    await made.channel.close()
