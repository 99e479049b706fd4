"""The process of one sub-job, seen from the API process: start or find it, talk to it, watch it, end it.

One process a sub-job for now; callers only know sub-job ids and operations, so that more processes can stand behind
one group later. The group owns the process: whatever happens to the job, `stop` leaves nothing of it running. When
the process dies by itself, or is killed because it is silent or too big, every open call fails with WorkerLost, naming
how it died and what it last printed, and `lost` resolves with the same text.

An operation has an id that no other ever has, over restarts of the API process too. Its reply stays with the worker
until `acknowledge`; an operation without an id of its caller's is acknowledged as soon as it is answered. After
`adopt` the group knows which operations an earlier API process has sent: `result_of` waits for one of them.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from drydock.errors import ServiceRestarted, WorkerLost
from drydock.service.channel import ChannelClosed, Message, ServiceChannel
from drydock.service.logs import last_lines
from drydock.service.worker_process import AttachedProcess, WorkerIdentity, WorkerProcess
from drydock.service.worker_spec import WorkerLimits, WorkerSpec
from drydock.wire.blob import Bytes

logger = logging.getLogger(__name__)

_DEATH_S = 2.0
_TURNS = 8
"""Turns of the event loop that others get after each reply: many calls that end at once would else make a poll wait
for all of them."""
_LAST_LINES = 8
_MEBIBYTE = 1 << 20

type OnLoss = Callable[[str, Collection[str]], str]
"""Told how a process died and which callers' operations it takes with it; what these callers are told."""


class WorkerStopped(Exception):
    """The job ended, and with it the call that was in flight."""


class OperationError(Exception):
    """An operation failed inside the worker, which lives on."""

    def __init__(self, message: str, *, error_type: str, blame: str, cancelled: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.error_type = error_type
        self.blame = blame
        self.cancelled = cancelled


class WorkerGroup:
    """One sub-job's process. Owner: the job that made it."""

    def __init__(self, spec: WorkerSpec, limits: WorkerLimits, on_loss: OnLoss | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.lost: asyncio.Future[str] = loop.create_future()
        self.resident_bytes = 0
        self.finished_operations = 0
        self.note: dict[str, Any] = {}
        self.predecessor_loss: str | None = None
        self._limits = limits
        self._on_loss = on_loss
        self._opened: asyncio.Future[None] = loop.create_future()
        self._calls: dict[str, asyncio.Future[Message]] = {}
        self._callers: set[str] = set()
        self._announced: set[str] = set()
        self._known: dict[str, dict[str, Any]] = {}
        self._early: dict[str, Message] = {}
        self._listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._process: WorkerProcess | None = None
        self._channel: ServiceChannel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._heard_at = 0.0
        self._condemned: str | None = None
        self._stopped: str | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return self._process.pid if self._process else None

    @property
    def identity(self) -> WorkerIdentity | None:
        """What finds the process again, None before the start."""
        return self._process.identity if self._process else None

    @property
    def open_calls(self) -> int:
        """Calls in flight; the least loaded replica is chosen by it."""
        return len(self._calls)

    @property
    def ready(self) -> bool:
        """Whether a call would be sent at once."""
        return self._opened.done() and not self.lost.done() and self._stopped is None

    @property
    def unstarted(self) -> bool:
        """Whether its process was never started."""
        return self._process is None and not self.lost.done()

    @property
    def known_operations(self) -> dict[str, dict[str, Any]]:
        """Operations of an earlier API process that nobody has asked for yet: {"op", "state", "request"} by id."""
        return self._known

    async def start(
        self, hardware: str | None = None, devices: Sequence[int] = (), standby: AttachedProcess | None = None
    ) -> dict[str, Any]:
        """Starts the process, or takes `standby`, and waits until its engine is ready; the engine's description.

        Calls wait until `open` is called. Raises OperationError (the engine refused its configuration) or WorkerLost.
        """
        if standby is not None:
            self._process = standby.process
        else:
            self._process = await WorkerProcess.start(self.spec, self._limits, hardware, devices)
        if self._stopped is not None:
            self._process.kill()
            await self._process.ended()
            raise WorkerStopped(self._stopped)
        try:
            self._attached(standby.channel if standby is not None else (await self._process.attach())[0])
        except WorkerLost as error:
            self._process.kill()
            await self._gone(await self._process.ended())
            raise WorkerLost(self.lost.result() if self.lost.done() else str(error)) from error
        reply = await self.ask_unopened("start", **self.spec.start_fields())
        return reply.header.get("result") or {}

    async def adopt(self, identity: WorkerIdentity) -> None:
        """Takes over a process that an earlier API process started. Raises WorkerLost when it is not there."""
        process = WorkerProcess(identity, None)
        channel, hello = await process.attach()
        self._process = process
        self.note = hello.get("note") or {}
        self._known = dict(hello.get("operations") or {})
        self._attached(channel)
        self.open()

    def raise_if_replaced(self) -> None:
        """Raises WorkerLost when this process stands in for one that died: what that one was asked for is gone."""
        if self.predecessor_loss is not None:
            raise WorkerLost(self.predecessor_loss)

    def gone(self, reason: str, callers: Collection[str]) -> None:
        """Declares a process that could not be found again lost, with the callers whose operations went with it."""
        self._lose(reason, callers)

    def open(self) -> None:
        """Lets calls through; those that waited go first, in order."""
        if not self._opened.done():
            self.finished_operations = 0
            self._opened.set_result(None)

    def announce(self, op_id: str) -> None:
        """Says that a caller is about to send this operation: from now on a death of the process concerns it."""
        self._callers.add(op_id)
        self._announced.add(op_id)

    async def call(self, op: str, payload: Bytes = b"", *, op_id: str | None = None, **fields: Any) -> Message:
        """Sends one operation and waits for its answer; operations are taken up in the order sent.

        With `op_id` the caller must `announce` it first and `acknowledge` it afterwards. Raises OperationError,
        WorkerLost or WorkerStopped.
        """
        if not self._opened.done():
            await asyncio.shield(self._opened)
        return await self._exchange(op, payload, op_id, fields)

    async def ask_unopened(self, op: str, **fields: Any) -> Message:
        """As `call`, before the worker is open to others."""
        return await self._exchange(op, b"", None, fields)

    async def result_of(self, op_id: str) -> Message:
        """The answer to an operation that an earlier API process sent; to be acknowledged like any other.

        Raises ServiceRestarted when the worker has never heard of it, else as `call`.
        """
        self._raise_if_gone()
        if op_id in self._early:
            del self._known[op_id]
            return _checked(self._early.pop(op_id))
        if op_id not in self._known:
            self.raise_if_replaced()
            raise ServiceRestarted(
                f"the service restarted before {self.spec.sub_job_id} had begun this request: it changed nothing and "
                "was not begun; send it again"
            )
        return await self._answer_to(op_id)

    @contextlib.contextmanager
    def heard(self, op_id: str, listener: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Inside the block `listener` gets what the worker tells about an operation before it is answered."""
        self._listeners[op_id] = listener
        try:
            yield
        finally:
            del self._listeners[op_id]

    def acknowledge(self, op_id: str) -> None:
        """Lets the worker forget the reply: it is safely stored."""
        self._callers.discard(op_id)
        self._announced.discard(op_id)
        if self._channel is not None and not self.lost.done() and self._stopped is None:
            self._channel.write(Message({"op": "ack", "ids": [op_id]}))

    def drop_unclaimed(self, claimed: Collection[str]) -> None:
        """Ends what an earlier API process asked for and no open request (`claimed`) waits for any more."""
        for op_id in [name for name in self._known if name.partition("/")[0] not in claimed]:
            operation = self._known.pop(op_id)
            if self._early.pop(op_id, None) is not None:
                self.acknowledge(op_id)
            elif self._channel is not None and operation["op"].startswith("generate"):
                self._channel.write(Message({"op": "abort", "request_id": op_id.partition("/")[0]}))

    async def notify(self, op: str, **fields: Any) -> None:
        """Sends a message that has no answer; a worker that is gone is no error."""
        if self._channel is not None:
            try:
                await self._channel.send(Message({"op": op, **fields}))
            except ChannelClosed:
                logger.debug("%s is gone; %s not sent", self.spec.sub_job_id, op)

    async def stop(self, reason: str) -> None:
        """Kills the process and its children and fails the calls in flight with WorkerStopped(reason)."""
        self._stopped = reason
        self.open()
        if self._process is not None:
            self._process.kill()
            if self._tasks:
                await asyncio.gather(*self._tasks, return_exceptions=True)
            else:
                await self._process.ended()
        self._fail_calls(WorkerStopped(reason))

    def _attached(self, channel: ServiceChannel) -> None:
        self._channel = channel
        self._heard_at = asyncio.get_running_loop().time()
        name = self.spec.sub_job_id
        watch = asyncio.create_task(self._watch(channel), name=f"watch {name}")
        pulse = asyncio.create_task(self._feel_pulse(), name=f"pulse {name}")
        watch.add_done_callback(lambda _: pulse.cancel())
        self._tasks = [watch, pulse]

    async def _exchange(self, op: str, payload: Bytes, op_id: str | None, fields: dict[str, Any]) -> Message:
        self._raise_if_gone()
        if self._channel is None:
            raise WorkerLost(f"{self.spec.sub_job_id} is not started")
        name = op_id or f"op_{uuid.uuid4().hex}"
        answer = self._expect(name)
        self._announced.discard(name)
        try:
            with contextlib.suppress(ChannelClosed):  # the watcher fails the call, and says how the process died
                await self._channel.send(Message({"op": op, "id": name, **fields}, payload))
            return _checked(await answer)
        finally:
            self._calls.pop(name, None)
            if op_id is None:
                self.acknowledge(name)

    async def _answer_to(self, op_id: str) -> Message:
        try:
            return _checked(await self._expect(op_id))
        finally:
            self._calls.pop(op_id, None)

    def _expect(self, name: str) -> asyncio.Future[Message]:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._calls[name] = answer
        return answer

    def _raise_if_gone(self) -> None:
        if self.lost.done():
            raise WorkerLost(self.lost.result())
        if self._stopped is not None:
            raise WorkerStopped(self._stopped)

    async def _watch(self, channel: ServiceChannel) -> None:
        """Hands answers to their callers until the process is gone, then says how it went."""
        assert self._process is not None
        with contextlib.suppress(ChannelClosed):
            while True:
                self._dispatch(await channel.receive())
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        try:
            async with asyncio.timeout(_DEATH_S):
                how = await self._process.ended()
        except TimeoutError:
            self._process.kill()
            how = await self._process.ended()
        self._process.kill()
        await channel.close()
        if self._stopped is None:
            await self._gone(how)

    def _dispatch(self, message: Message) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        beat = message.header.get("heartbeat")
        if beat is not None:
            self.resident_bytes = beat["resident_bytes"]
            limit = self._limits.memory_mb
            if limit is not None and self.resident_bytes > limit * _MEBIBYTE:
                held = self.resident_bytes // _MEBIBYTE
                self._condemn(f"it held {held} MB of memory, more than worker_memory_mb = {limit}")
            return
        name = message.header["id"]
        piece = message.header.get("piece")
        if piece is not None:
            if (listener := self._listeners.get(name)) is not None:
                listener(piece)
            return
        if "progress" in message.header:
            self.note = {**self.note, "progress": message.header["progress"]}
        answer = self._calls.get(name)
        if answer is not None and not answer.done():
            self.finished_operations += 1
            self._known.pop(name, None)
            answer.set_result(message)
        elif name in self._known:
            self._early[name] = message
        else:
            self.acknowledge(name)

    async def _feel_pulse(self) -> None:
        """Kills a process that says nothing for too long. A pause of this process itself is not held against it."""
        limit_s = self._limits.heartbeat_timeout_s
        interval_s = min(1.0, limit_s / 4)
        loop = asyncio.get_running_loop()
        while True:
            slept_at = loop.time()
            await asyncio.sleep(interval_s)
            if loop.time() - slept_at > interval_s + limit_s / 4:
                self._heard_at = loop.time()
            elif loop.time() - self._heard_at > limit_s:
                self._condemn(f"it said nothing for {limit_s:g} s (heartbeat_timeout_s)")

    def _condemn(self, reason: str) -> None:
        if self._condemned is None and self._process is not None:
            self._condemned = reason
            self._process.kill()

    async def _gone(self, how: str) -> None:
        assert self._process is not None
        if self._condemned is not None:
            how = f"was killed by the service: {self._condemned}"
        lines = await asyncio.to_thread(last_lines, self.spec.log_dir, _LAST_LINES)
        reason = f"the process of {self.spec.sub_job_id} (pid {self._process.pid}) {how}" + _quoted(lines)
        self._lose(reason, self._callers & (self._calls.keys() | self._announced))

    def _lose(self, reason: str, in_flight: Collection[str]) -> None:
        if self.lost.done() or self._stopped is not None:
            return
        logger.error("%s", reason)
        told = self._on_loss(reason, in_flight) if self._on_loss else reason
        self.lost.set_result(told)
        self.open()
        self._fail_calls(WorkerLost(told))

    def _fail_calls(self, error: Exception) -> None:
        for answer in list(self._calls.values()):
            if not answer.done():
                answer.set_exception(error)


def _checked(reply: Message) -> Message:
    """The reply, unless it tells of an error. Raises OperationError."""
    error = reply.header.get("error")
    if error is None:
        return reply
    raise OperationError(
        error["message"],
        error_type=error["type"],
        blame=error["blame"],
        cancelled=error.get("cancelled", False),
    )


def _quoted(lines: Sequence[str]) -> str:
    return "; its last log lines: " + " | ".join(lines) if lines else "; it left no log"
