"""One data-plane request: what it asks, how it stands, what came of it, and its row in the store.

`RequestTable` opens, drives and writes records; the work that a request does fills them in and speaks to workers
through `ask`, under operation ids that are the request's own, so that a restarted service finds the answers again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drydock.service.channel import Message
from drydock.service.meters import Metered
from drydock.service.schema import Row
from drydock.service.worker_group import WorkerGroup
from drydock.wire.blob import Bytes
from drydock.wire.status import RequestStatus

HARMLESS_KINDS = frozenset({"generate", "generate-stream", "forward"})
"""Requests that change nothing: they may begin before they are written. The worker keeps their row meanwhile."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request produced: a JSON object, or a frame whose value is that object with arrays in it.

    metered: what it used, added to the usage table in the transaction that writes it as finished.
    """

    result: dict[str, Any] | None = None
    frame: Bytes | None = None
    metered: tuple[Metered, ...] = ()


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One request.

    wants_tensors: DSSST1 results were asked for. arguments: what a restarted service needs to go on with it.
    events: what a streaming request has told so far (`emit`), in order; delivered: how many of them polls without a
    cursor have had. waiters: futures of held answers. claims: how often it was asked for again, by poll or by key.
    """

    request_id: str
    job_id: str
    kind: str
    created_at: float
    updated_at: float
    status: RequestStatus = RequestStatus.PENDING
    idempotency_key: str | None = None
    body_sha256: str | None = None
    wants_tensors: bool = False
    arguments: dict[str, Any] | None = None
    outcome: Outcome = field(default_factory=Outcome)
    result_file: str | None = None
    error: str | None = None
    error_type: str | None = None
    blame: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    delivered: int = 0
    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    claims: int = 0
    resumed: bool = False
    before_asking: Callable[[], Awaitable[None]] | None = None
    settled: list[Callable[[], None]] = field(default_factory=list)

    async def ask(
        self, worker: WorkerGroup, op: str, payload: Bytes = b"", *, part: str | None = None, **fields: Any
    ) -> Message:
        """The worker's answer to an operation of this request; one that a restart interrupted is waited for.

        part: tells several operations of one request apart. Set `arguments` first. Raises as `WorkerGroup.call`.
        """
        op_id = self.request_id if part is None else f"{self.request_id}/{part}"
        self.settled.append(partial(worker.acknowledge, op_id))
        worker.announce(op_id)
        if self.resumed:
            return await worker.result_of(op_id)
        if self.before_asking is not None:
            await self.before_asking()
        if self.kind in HARMLESS_KINDS:
            fields["request"] = self.row()
        return await worker.call(op, payload, op_id=op_id, **fields)

    def row(self) -> Row:
        """The request's row in the store."""
        return {
            "request_id": self.request_id,
            "job_id": self.job_id,
            "kind": self.kind,
            "status": self.status.value,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "idempotency_key": self.idempotency_key,
            "body_sha256": self.body_sha256,
            "wants_tensors": int(self.wants_tensors),
            "arguments": self.arguments,
            "result": self.outcome.result,
            "result_file": self.result_file,
            "error": self.error,
            "error_type": self.error_type,
            "blame": self.blame,
        }

    @classmethod
    def from_row(cls, row: Row) -> "RequestRecord":
        """The request in a row."""
        fields = {**row, "status": RequestStatus(row["status"]), "wants_tensors": bool(row["wants_tensors"])}
        return cls(**{key: value for key, value in fields.items() if key != "result"}, outcome=Outcome(row["result"]))
