"""Calls about the LoRA adapters that a job's samplers hold beside their policy."""

from typing import Any

from drydock.client.call import open_call
from drydock.client.request_calls import RequestCalls

DEADLINE_S = 180.0


class AdapterCalls(RequestCalls):
    """Named adapters. `SamplingParams.adapter` picks the one that a prompt is sampled with, `base` none at all."""

    async def load_adapter(
        self,
        job_id: str,
        adapter: str,
        checkpoint_id: str,
        *,
        source_job_id: str | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> str:
        """Have the samplers hold a LoRA checkpoint under a name, in place of one of that name; its fingerprint.

        source_job_id: the job that saved the checkpoint, this one when None.
        """
        payload = {"adapter": adapter, "checkpoint_id": checkpoint_id}
        payload |= {"source_job_id": source_job_id} if source_job_id is not None else {}
        return str((await self._adapter_operation("load-adapter", job_id, payload, deadline_s))["fingerprint"])

    async def drop_adapter(self, job_id: str, adapter: str, *, deadline_s: float = DEADLINE_S) -> None:
        """Have the samplers forget a named adapter; its requests in flight fail."""
        await self._adapter_operation("drop-adapter", job_id, {"adapter": adapter}, deadline_s)

    async def list_adapters(self, job_id: str, *, deadline_s: float = DEADLINE_S) -> dict[str, str]:
        """Names and fingerprints of the adapters that are held."""
        return dict((await self._adapter_operation("list-adapters", job_id, {}, deadline_s))["adapters"])

    async def _adapter_operation(
        self, operation: str, job_id: str, payload: dict[str, Any], deadline_s: float
    ) -> dict[str, Any]:
        body = {"operation_type": operation, "sub_job_type": "sampling", "payload": payload}
        async with open_call(operation, job_id, deadline_s) as call:
            return await self._operate(call, job_id, body)
