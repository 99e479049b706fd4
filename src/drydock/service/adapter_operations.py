"""Named LoRA adapters of a job's samplers: load-adapter, drop-adapter, list-adapters of the generic operation.

Payload of load-adapter: `{"adapter": name, "checkpoint_id", "source_job_id"?}`; the checkpoint is a weights-only or
resumable one of a LoRA job, this job by default. Every sampling sub-job holds the same adapters. What it is to hold is
written down before a sampler is asked, so that one that is started again after it died holds it too.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from drydock.service import body
from drydock.service.access import require_source
from drydock.service.ask_all import ask_all
from drydock.service.context import Service, service_of
from drydock.service.problems import Refusal
from drydock.wire.rest import OperationBody

TIMEOUT_S = 120.0
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


class AdapterName(BaseModel):
    """Which adapter."""

    model_config = ConfigDict(extra="forbid")

    adapter: str = Field(pattern=NAME)


class AdapterSource(AdapterName):
    """Which adapter, and the checkpoint that it is in."""

    checkpoint_id: str = Field(min_length=1)
    source_job_id: str | None = None


async def load(request: Request, job_id: str, parsed: OperationBody) -> dict[str, Any]:
    """Has every sampler hold the checkpoint's adapter under a name. Raises Refusal when one cannot."""
    service = service_of(request)
    wanted = body.model(AdapterSource, parsed.payload or {})
    if wanted.source_job_id is not None:
        await require_source(request, wanted.source_job_id, "payload.source_job_id")
    path = await service.checkpoints.find(wanted.source_job_id or job_id, wanted.checkpoint_id)
    with service.checkpoints.kept(path):
        replies = await _change(service, job_id, "load-adapter", wanted.adapter, str(path))
    return {"adapter": wanted.adapter, "fingerprint": replies[0]["fingerprint"]}


async def drop(service: Service, job_id: str, parsed: OperationBody) -> dict[str, Any]:
    """Has every sampler forget an adapter. Raises Refusal 404 when none held it."""
    wanted = body.model(AdapterName, parsed.payload or {})
    replies = await _change(service, job_id, "drop-adapter", wanted.adapter, None)
    if not any(reply["dropped"] for reply in replies):
        raise Refusal(404, f"payload.adapter: job {job_id} holds no adapter {wanted.adapter!r}")
    return {"adapter": wanted.adapter, "dropped": True}


async def held(service: Service, job_id: str) -> dict[str, Any]:
    """Names and fingerprints of the adapters that the job's samplers hold."""
    job = await service.jobs.require_running(job_id)
    return {"adapters": (await ask_all(job.sampling(), "list-adapters", TIMEOUT_S))[0]["adapters"]}


async def _change(service: Service, job_id: str, op: str, adapter: str, folder: str | None) -> list[dict[str, Any]]:
    """Has every sampler hold `folder` under the adapter's name, and writes it down unless one refuses."""
    job = await service.jobs.require_running(job_id)
    names = [worker.spec.sub_job_id for worker in job.sampling()]
    before = {name: dict(job.held_adapters.get(name, {})) for name in names}
    for name in names:
        job.adapter_changed(name, adapter, folder)
    await service.jobs.write(job)
    fields = {"adapter": adapter} if folder is None else {"adapter": adapter, "path": folder}
    try:
        return await ask_all(job.sampling(), op, TIMEOUT_S, **fields)
    except Refusal as refusal:
        if refusal.status == 422:
            for name in names:
                job.held_adapters[name].pop(adapter, None)
                job.held_adapters[name] |= {key: kept for key, kept in before[name].items() if key == adapter}
            await service.jobs.write(job)
        raise
