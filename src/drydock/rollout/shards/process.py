"""One shard's process as the driver sees it, from its start to its end."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Self

from drydock.deadline import deadline
from drydock.errors import Blame, HarnessError, RolloutShardError, UserError
from drydock.harness.settle import settle
from drydock.rollout.shards.channel import Channel, ChannelClosed
from drydock.rollout.shards.launch import ShardLaunch
from drydock.rollout.shards.messages import (
    Alive,
    Cancel,
    Cancelled,
    Done,
    Failed,
    Message,
    Ready,
    Refused,
    Run,
    Setup,
)
from drydock.rollout.shards.spawn import ending_of, log_file, log_tail, spawn
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory

log = logging.getLogger(__name__)

_AFTER_KILL_S = 10.0


class ShardDied(Exception):
    """A shard ended by itself (control flow: a rollout in it becomes a trajectory).

    said: which shard, and how it ended. log_tail: the last lines that it printed.
    """

    def __init__(self, said: str, log_tail: str) -> None:
        super().__init__(said)
        self.said = said
        self.log_tail = log_tail


class ShardProcess:
    """A process, the link to it and the rollouts in it. `stop` ends all of that and must be called.

    ending: how it ended.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: Channel, launch: ShardLaunch) -> None:
        self._name = f"rollout shard {number} (process {process.pid})"
        self._process = process
        self._channel = channel
        self._launch = launch
        self._log = log_file(launch, number)
        self._stopping = False
        self.ending = "still runs"
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._reading = asyncio.create_task(self._read(), name=f"read {self._name}")

    @classmethod
    async def start(cls, launch: ShardLaunch, number: int) -> Self:
        """Start the process and tell it its settings."""
        process, channel = await spawn(launch, number)
        channel.write(Setup(), launch.setups[number])
        return cls(number, process, channel, launch)

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return not self._reading.done() and not self._stopping

    async def ready(self) -> None:
        """Wait until it takes rollouts.

        Raises UserError or RolloutShardError with what it found wrong, ShardDied, DeadlineExceeded.
        """
        async with deadline(f"{self._name} to start", self._launch.limits.start_s, f"see {self._log}"):
            await asyncio.shield(self._is_ready)

    async def run(self, pool: str, spec: RolloutSpec, out_dir: Path | None) -> Trajectory:
        """Have an attempt made. A cancellation returns when the rollout's sandbox is gone, or its deadline over.

        Raises ShardDied when the process ends before the rollout, RolloutShardError for an error of Drydock's own.
        """
        if spec.rollout_id in self._answers:
            raise HarnessError(f"rollout {spec.rollout_id!r} is already running; rollout ids must be unique")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[spec.rollout_id] = answer
        try:
            if not self.alive:
                raise await self._death()
            self._channel.write(Run(pool=pool, spec=spec, out_dir=out_dir))
            try:
                return Trajectory.model_validate_json(await asyncio.shield(answer))
            except asyncio.CancelledError:
                await self._cancel(spec.rollout_id, answer)
                raise
        finally:
            del self._answers[spec.rollout_id]

    async def stop(self) -> None:
        """End the process, its rollouts and their sandboxes; returns when it is gone, killed if need be."""
        self._stopping = True
        self._channel.close()
        limit = self._launch.limits.stop_s + 2 * _AFTER_KILL_S
        if not await settle(self._reading, limit):
            log.error(
                "gave up waiting for %s to end after %g s; `drydock reap` removes what is left", self._name, limit
            )

    def kill(self) -> None:
        """Kill the process; what waits for it is told."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _cancel(self, rollout_id: str, answer: asyncio.Future[bytes]) -> None:
        self._channel.write(Cancel(rollout_id=rollout_id))
        limit = self._launch.limits.cancel_s
        if await settle(answer, limit):
            return
        log.error(
            "gave up waiting for rollout %s to be cancelled in %s after %g s: killed", rollout_id, self._name, limit
        )
        self.kill()
        await settle(answer, _AFTER_KILL_S)

    async def _read(self) -> None:
        """Hand out what the process says until it is gone, then tell everybody who waits."""
        killed = ""
        try:
            while True:
                limit = self._launch.limits.silent_s if self._is_ready.done() else None
                async with asyncio.timeout(limit):
                    message, payload = await self._channel.receive()
                self._hand_out(message, payload)
        except ChannelClosed:
            pass
        except TimeoutError:
            killed = f"gave no sign of life for {self._launch.limits.silent_s:g} s and "
            self.kill()
        finally:
            self.ending = killed + await self._end()
            died = await self._death()
            if not self._stopping:
                log.error("%s; %d rollouts are lost", died.said, len(self._answers))
            await self._clean_up()
            for waiting in (self._is_ready, *self._answers.values()):
                _fail(waiting, died)

    def _hand_out(self, message: Message, payload: bytes) -> None:
        match message:
            case Ready():
                _resolve(self._is_ready, None)
            case Alive():
                pass
            case Refused(error=error, blame=blame):
                kind = UserError if blame is Blame.USER else RolloutShardError
                _fail(self._is_ready, kind(f"{self._name} cannot start: {error}"))
            case Done(rollout_id=rollout_id):
                _resolve(self._answers.get(rollout_id), payload)
            case Cancelled(rollout_id=rollout_id):
                _fail(self._answers.get(rollout_id), ShardDied(f"{rollout_id} was cancelled in its shard", ""))
            case Failed(rollout_id=rollout_id, error=error):
                said = f"rollout {rollout_id} failed in {self._name}: {error}"
                _fail(self._answers.get(rollout_id), RolloutShardError(said))
            case _:
                raise ChannelClosed(f"{type(message).__name__} is for a driver to say")

    async def _clean_up(self) -> None:
        """Remove what the sandboxes of a process left that did not end well."""
        if self._launch.after_death is None or (self._stopping and self._process.returncode == 0):
            return
        try:
            await asyncio.to_thread(self._launch.after_death)
        except Exception:
            log.exception("what the sandboxes of %s left could not be removed; `drydock reap` does it", self._name)

    async def _end(self) -> str:
        """Wait for the end of a process that is on its way out; how it went."""
        try:
            async with asyncio.timeout(self._launch.limits.stop_s):
                code = await self._process.wait()
        except TimeoutError:
            log.error("%s did not end within %g s: killed", self._name, self._launch.limits.stop_s)
            self.kill()
            code = await self._process.wait()
        self._channel.close()
        return ending_of(code)

    async def _death(self) -> ShardDied:
        return ShardDied(f"{self._name} {self.ending}", await asyncio.to_thread(log_tail, self._log))


def _resolve[T](waiting: asyncio.Future[T] | None, value: T) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)


def _fail(waiting: asyncio.Future | None, error: Exception) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_exception(error)
        waiting.exception()  # seen: whoever waits for it may have been cancelled
