"""Sampling as a stream: a request's events, and which of the prompts they finish.

Events are read from the server's event stream where it has one, else by polling. Either way one may come twice, so a
prompt counts as finished once.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

from drydock.client.call import Call
from drydock.client.polling import FIRST_INTERVAL_S, INTERVAL_GROWTH, LAST_INTERVAL_S, text_or_none
from drydock.client.results import Generation
from drydock.client.server_events import NoEvents, follow
from drydock.client.transport import Transport, job_path
from drydock.errors import RequestFailed, ServiceError
from drydock.wire.results import read_result
from drydock.wire.status import RequestStatus


async def stream_events(
    transport: Transport, call: Call, job_id: str, request_id: str, *, follow_events: bool, cursor: str = ""
) -> AsyncGenerator[dict[str, Any]]:
    """The request's events ({"type": "result" | "error" | "done", ...}); at last {"type": "end", "status", "error"}.

    cursor: where a poll begins; "" goes on where the last poll stopped, on servers that hand out each event once.
    """
    path = job_path(job_id, f"/requests/{request_id}")
    page: dict[str, Any] | None = None
    if follow_events:
        events = follow(transport, call, path)
        async with contextlib.aclosing(events):
            try:
                async for event in events:
                    yield {**event.data, "type": event.name}
                return
            except NoEvents as instead:
                page = instead.answer  # it may hold events that a poll would not be given again
    interval_s = FIRST_INTERVAL_S
    while True:
        if page is None:
            page = await transport.send(call, "GET", path, params={"cursor": cursor} if cursor else None)
        found = [event for event in page.get("events") or () if isinstance(event, Mapping)]
        for event in found:
            yield dict(event)
        cursor = text_or_none(page.get("next_cursor")) or ""
        if not cursor and RequestStatus.parse(page.get("status")).terminal:
            yield {**page, "type": "end"}
            return
        page = None
        if not cursor:
            interval_s = FIRST_INTERVAL_S if found else min(interval_s * INTERVAL_GROWTH, LAST_INTERVAL_S)
            await asyncio.sleep(interval_s)


class StreamedPrompts:
    """Which of `count` prompts are finished, and how the request that samples them ended."""

    def __init__(self, count: int, with_logprobs: bool) -> None:
        self._count = count
        self._with_logprobs = with_logprobs
        self._finished: set[int] = set()
        self._errors: dict[int, str] = {}
        self._end: Mapping[str, Any] = {}

    def open_indices(self) -> list[int]:
        """The prompts that are to be sampled (again): those without a completion."""
        self._errors, self._end = {}, {}
        return [index for index in range(self._count) if index not in self._finished]

    def take(self, call: Call, event: Mapping[str, Any], indices: Sequence[int]) -> Iterator[tuple[int, Generation]]:
        """The completion in an event, if it holds a new one. `indices`: the request's prompts among all prompts."""
        kind = event.get("type")
        if kind == "end":
            self._end = event
        if kind not in ("result", "error"):
            return
        index = call.read(lambda event: indices[int(event["index"])], event)
        if index in self._finished:
            return
        if kind == "error":
            self._errors[index] = str(event.get("error") or "no reason given")
            return
        generation = call.read(
            lambda event: Generation.from_result(read_result(event["result"]), with_logprobs=self._with_logprobs), event
        )
        self._finished.add(index)
        yield index, generation

    def forgotten(self) -> None:
        """The service no longer knows the request: it was restarted before it had written it down."""
        error = "the service was restarted and no longer knows the request"
        self._end = {"status": RequestStatus.FAILED.value, "error": error, "error_type": "ServiceRestarted"}

    @property
    def untold(self) -> bool:
        """Whether the request completed and yet a prompt was told neither as finished nor as failed.

        A service that was restarted may count its events anew, so that some were passed over.
        """
        completed = RequestStatus.parse(self._end.get("status")) is RequestStatus.COMPLETED
        return completed and len(self._finished | self._errors.keys()) < self._count

    def failure(self, call: Call, request_id: str) -> RequestFailed | None:
        """Why prompts are missing, None when none is. Raises ServiceError when the server gives no reason."""
        missing = [index for index in range(self._count) if index not in self._finished]
        if not missing:
            return None
        status = RequestStatus.parse(self._end.get("status"))
        error_type = text_or_none(self._end.get("error_type"))
        if self._errors:
            named = "; ".join(f"prompt {index}: {error}" for index, error in list(self._errors.items())[:5])
            return RequestFailed(f"{call.label}: {len(missing)} of {self._count} prompts failed: {named}", error_type)
        if status in (RequestStatus.FAILED, RequestStatus.CANCELLED):
            reason = self._end.get("error") or "the server gave no reason"
            return RequestFailed(f"{call.label}: request {request_id} ended as {status}: {reason}", error_type)
        raise ServiceError(f"{call.label}: the stream of request {request_id} ended without prompts {missing[:10]}")
