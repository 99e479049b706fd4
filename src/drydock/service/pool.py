"""Who gets which GPU (or CPU slot): room of a fixed size by hardware type, given out in the order of asking.

Strictly in order for each type: a job that asks for much is not overtaken by one that asks for little, or it could
wait forever. A pool only counts; it starts and stops nothing. What a job holds is given back by `release`, once.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drydock.service.gpus import gpu_types
from drydock.service.problems import Refusal

CPU = "CPU"
"""The hardware type whose slots are not GPUs."""
LEAST_CPU_SLOTS = 8


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Slots of one hardware type. `pending` are those that waiting jobs ask for."""

    total: int
    in_use: int
    pending: int

    @property
    def available(self) -> int:
        """What a job that asks now could get at once, were nobody waiting."""
        return max(0, self.total - self.in_use)


@dataclass(slots=True)
class _Waiting:
    job_id: str
    slots: int
    granted: asyncio.Future[list[int]]


@dataclass(slots=True)
class _Shelf:
    """One hardware type. `devices`: its GPUs, none for CPU slots; `held`: slots and devices by job."""

    total: int
    devices: list[int]
    held: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    queue: deque[_Waiting] = field(default_factory=deque)

    @property
    def in_use(self) -> int:
        return sum(slots for slots, _ in self.held.values())

    @property
    def free(self) -> list[int]:
        holding = {device for _, devices in self.held.values() for device in devices}
        return [device for device in self.devices if device not in holding]

    def has_room(self, slots: int) -> bool:
        return self.in_use + slots <= self.total and (not self.devices or slots <= len(self.free))

    def grant(self) -> None:
        """Serves the queue from its head until the head does not fit."""
        while self.queue:
            head = self.queue[0]
            if not head.granted.done():
                if not self.has_room(head.slots):
                    return
                devices = self.free[: head.slots]
                self.held[head.job_id] = (head.slots, devices)
                head.granted.set_result(devices)
            self.queue.popleft()


class Pool:
    """All room of one service. Not for use from several threads."""

    def __init__(self, capacity: Mapping[str, int], devices: Mapping[str, Sequence[int]] | None = None) -> None:
        """`devices` names the GPUs of each type; by default they are numbered through in the order of `capacity`."""
        if not capacity:
            raise ValueError("pool: name at least one hardware type, as in {'H200': 8} or {'CPU': 8}")
        self.default_hardware = next(iter(capacity))
        self._shelves: dict[str, _Shelf] = {}
        following = 0
        for hardware, total in capacity.items():
            if total < 0:
                raise ValueError(f"pool.{hardware}: {total} is negative")
            numbered = [] if hardware == CPU else list(range(following, following + total))
            following += len(numbered)
            owned = list(devices[hardware]) if devices and hardware in devices else numbered
            self._shelves[hardware] = _Shelf(total, owned)

    @classmethod
    def of_machine(
        cls, configured: Mapping[str, int] | None, *, gpus: Sequence[str] | None = None, cores: int | None = None
    ) -> "Pool":
        """The configured pool, else the machine's GPUs by type, else CPU slots.

        A configured type gets the machine's devices of that name first. `gpus` (types by place) and `cores` are
        looked up when not given; that runs the driver's tool, so call this before the event loop is busy.
        """
        found = list(gpu_types() if gpus is None else gpus)
        capacity = configured or Counter(found) or {CPU: max(LEAST_CPU_SLOTS, 2 * (cores or os.cpu_count() or 1))}
        devices = {
            hardware: [place for place, name in enumerate(found) if name == hardware][:total]
            for hardware, total in capacity.items()
            if hardware != CPU
        }
        taken = {place for places in devices.values() for place in places}
        spare = (place for place in range(len(found) + sum(capacity.values())) if place not in taken)
        for hardware, places in devices.items():
            places.extend(next(spare) for _ in range(capacity[hardware] - len(places)))
        return cls(capacity, devices)

    def check(self, hardware: str | None, slots: int) -> str:
        """The hardware type to use, the default one for None. Raises Refusal 422 for what can never be placed."""
        known = {name.lower(): name for name in self._shelves}
        chosen = self.default_hardware if hardware is None else known.get(hardware.lower())
        if chosen is None:
            has = ", ".join(f"{name}: {shelf.total}" for name, shelf in self._shelves.items())
            raise Refusal(422, f"hardware: {hardware!r} is not in this pool (it has {has}); choose one or leave it out")
        if slots < 1:
            raise Refusal(422, f"n_gpus: {slots} asked for; a job needs at least one slot")
        total = self._shelves[chosen].total
        if slots > total:
            raise Refusal(
                422, f"n_gpus: {slots} asked for in all, but this pool has {total} of {chosen}; ask for at most that"
            )
        return chosen

    async def acquire(self, job_id: str, hardware: str, slots: int) -> list[int]:
        """Waits for `slots` of `hardware`, in order; the devices given, none for CPU slots.

        A cancelled wait leaves the queue. Raises Refusal for what could never be given.
        """
        shelf = self._shelves[self.check(hardware, slots)]
        waiting = _Waiting(job_id, slots, asyncio.get_running_loop().create_future())
        shelf.queue.append(waiting)
        shelf.grant()
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            self.release(job_id)
            raise

    def adopt(self, job_id: str, hardware: str, slots: int, devices: Sequence[int]) -> None:
        """Counts room that a job has from before; never refused, so that `in_use` may pass a smaller new total."""
        shelf = self._shelves.setdefault(hardware, _Shelf(0, []))
        shelf.held[job_id] = (slots, list(devices))

    def release(self, job_id: str) -> None:
        """Gives back what the job holds or ends its wait; nothing for a job that does neither."""
        for shelf in self._shelves.values():
            for waiting in shelf.queue:
                if waiting.job_id == job_id:
                    waiting.granted.cancel()
            shelf.queue = deque(waiting for waiting in shelf.queue if waiting.job_id != job_id)
            shelf.held.pop(job_id, None)
            shelf.grant()

    def counts(self, hardware: str) -> PoolCounts:
        """How much there is of a type and how much of it is taken or waited for; zeros for an unknown type."""
        shelf = self._shelves.get(hardware)
        if shelf is None:
            return PoolCounts(0, 0, 0)
        return PoolCounts(shelf.total, shelf.in_use, sum(entry.slots for entry in shelf.queue))

    def position(self, job_id: str) -> int | None:
        """The job's place in its queue, from 1; None for a job that does not wait."""
        for shelf in self._shelves.values():
            for place, waiting in enumerate(shelf.queue, start=1):
                if waiting.job_id == job_id:
                    return place
        return None

    @property
    def hardware_types(self) -> list[str]:
        """Every type that the pool has or that a job still holds."""
        return list(self._shelves)
