"""Calls about requests: cancel one."""

from typing import Any

from drydock.client.call import open_call
from drydock.client.connection import CONTROL_DEADLINE_S, Connection


class RequestCalls(Connection):
    """Requests that are no longer wanted."""

    async def cancel_request(
        self, job_id: str, request_id: str, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> dict[str, Any]:
        """Ask for the end of a request; the server's answer says what became of it."""
        body = {"operation_type": "cancel-request", "payload": {"request_id": request_id}}
        async with open_call("cancel-request", job_id, deadline_s) as call:
            return await self._post_json(call, job_id, "/operation", body)
