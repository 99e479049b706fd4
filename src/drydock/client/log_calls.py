"""Calls about logs: a page of a sub-job's log, or all of it as it is written."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

from drydock.client.call import open_call, start_call
from drydock.client.connection import CONTROL_DEADLINE_S, Connection
from drydock.client.log_stream import LogPage, stream_log

FOREVER_S: Final = 30 * 86_400.0


class LogCalls(Connection):
    """Logs of sub-jobs."""

    async def tail_logs(
        self,
        job_id: str,
        sub_job_id: str | None = None,
        *,
        cursor: str | None = None,
        max_lines: int | None = None,
        deadline_s: float = CONTROL_DEADLINE_S,
    ) -> LogPage:
        """One page of a sub-job's log, which may be left out of a job that has only one. No cursor: from the start."""
        given = {"cursor": cursor, "max_lines": max_lines}
        body: dict[str, Any] = {
            "operation_type": "tail-logs",
            "payload": {name: value for name, value in given.items() if value is not None},
        }
        if sub_job_id is not None:
            body["sub_job_id"] = sub_job_id
        async with open_call("tail-logs", job_id, deadline_s) as call:
            answer = await self._post_json(call, job_id, "/operation", body)
            return call.read(LogPage.from_answer, answer)

    async def stream_logs(
        self,
        job_id: str,
        sub_job_id: str | None = None,
        *,
        cursor: str | None = None,
        follow: bool = True,
        deadline_s: float = FOREVER_S,
    ) -> AsyncGenerator[dict[str, Any]]:
        """The entries of a sub-job's log, one by one; with `follow` until the job is over and its log read whole."""
        call = start_call("stream-logs", job_id, deadline_s)

        async def page(at: str | None) -> LogPage:
            return await self.tail_logs(job_id, sub_job_id, cursor=at, max_lines=2000, deadline_s=call.seconds_left)

        if not follow:
            while True:
                found = await page(cursor)
                for entry in found.entries:
                    yield entry
                if found.eof or (not found.entries and found.next_cursor == cursor):
                    return
                cursor = found.next_cursor
        entries = stream_log(self._transport, call, job_id, sub_job_id, cursor, page, follow_events=not self._hosted)
        async with contextlib.aclosing(entries):
            async for entry in entries:
                yield entry
