"""Handing the trainer's weights to the samplers, with proof that they arrived.

The trainer writes a safetensors file with a fingerprint of names, shapes and bytes; each target finishes the
sequences it is decoding, loads the file, forgets its prefix cache and says which fingerprint it now holds. The
request fails unless all of them equal the trainer's. The file is removed whatever happens, unless a target is to be
started again when its process dies: then it stays until the next sync, or the end of the job.
"""

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

from drydock.errors import EngineError
from drydock.service.live_job import LiveJob
from drydock.service.model_facts import facts_of_sub_job
from drydock.service.problems import Refusal
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.worker_group import WorkerGroup
from drydock.wire.rest import WeightSyncPayload

WEIGHT_FORMATS = ("lora", "vllm", "hf")
"""`lora` syncs an adapter alone, which is also what a job with an adapter does unless told otherwise."""


def check(job: LiveJob, payload: WeightSyncPayload) -> tuple[WorkerGroup, list[WorkerGroup]]:
    """The source and target workers. Raises Refusal 422 naming the field."""
    source = job.workers.get(payload.source_sub_job_id)
    if source is None or source.spec.job_type != "training":
        raise Refusal(
            422,
            f"payload.source_sub_job_id: {payload.source_sub_job_id!r} is no training sub-job of job {job.job_id}",
        )
    targets: list[WorkerGroup] = []
    for name in dict.fromkeys(payload.target_sub_job_ids):
        target = job.workers.get(name)
        if target is None or target.spec.job_type != "sampling":
            raise Refusal(422, f"payload.target_sub_job_ids: {name!r} is no sampling sub-job of job {job.job_id}")
        if problem := different_models(source, target):
            raise Refusal(
                422,
                f"payload.target_sub_job_ids: {name!r} does not hold the model of {source.spec.sub_job_id}: {problem}",
            )
        targets.append(target)
    if payload.weight_format is not None and payload.weight_format not in WEIGHT_FORMATS:
        known = ", ".join(WEIGHT_FORMATS)
        raise Refusal(501, f"payload.weight_format: {payload.weight_format!r} is not served; use one of {known}")
    if payload.weight_format == "lora" and not source.spec.config["training_config"].get("peft_config"):
        raise Refusal(
            422, f"payload.weight_format: 'lora', but {payload.source_sub_job_id} trains all weights; leave it out"
        )
    return source, targets


def different_models(source: WorkerGroup, target: WorkerGroup) -> str:
    """Why the source's weights cannot fit the target, as far as their models' files tell; empty when they may."""
    first, second = (
        facts_of_sub_job(worker.spec.sub_job_id, str(worker.spec.config["model_name"])) for worker in (source, target)
    )
    return first.differences(second) if first is not None and second is not None else ""


async def weight_sync(
    job: LiveJob,
    source: WorkerGroup,
    targets: list[WorkerGroup],
    weights_dir: Path,
    weight_format: str | None,
    record: RequestRecord,
) -> Outcome:
    """Runs one sync. Raises EngineError when a target holds other weights afterwards.

    A sync that a restart of the service interrupted runs again as a whole: twice the same weights are the same weights.
    """
    started = time.monotonic()
    job.begin_training(record)
    if record.resumed:
        source.raise_if_replaced()
        record.resumed = False
    names = [target.spec.sub_job_id for target in targets]
    record.arguments = {"source": source.spec.sub_job_id, "targets": names, "weight_format": weight_format}
    attempt = uuid.uuid4().hex[:8]
    path = weights_dir / f"{record.request_id}-{attempt}.safetensors"
    try:
        reply = await record.ask(
            source, "export-weights", part=f"{attempt}/0", path=str(path), weight_format=weight_format
        )
        exported = reply.header["result"]
        weights = {name: exported[name] for name in ("path", "policy_version", "fingerprint")}
        replies = await asyncio.gather(
            *(
                record.ask(target, "load-weights", part=f"{attempt}/{number}", **weights)
                for number, target in enumerate(targets, start=1)
            )
        )
        for name, reply in zip(names, replies, strict=True):
            for adapter in reply.header["result"].get("dropped_adapters", ()):
                job.adapter_changed(name, adapter, None)
                job.changed()
        _keep(job, [name for name in names if job.restartable(name)], weights)
    finally:
        if str(path) not in kept_files(job):
            path.unlink(missing_ok=True)
    held = {target.spec.sub_job_id: reply.header["result"] for target, reply in zip(targets, replies, strict=True)}
    for name, confirmation in held.items():
        if confirmation["fingerprint"] != exported["fingerprint"]:
            raise EngineError(
                f"weight sync: {name} holds weights {confirmation['fingerprint']} after loading "
                f"{exported['fingerprint']} from {source.spec.sub_job_id}; sync again before you sample"
            )
    return Outcome(
        {
            "policy_version": exported["policy_version"],
            "fingerprint": exported["fingerprint"],
            "seconds": time.monotonic() - started,
            "targets": held,
        }
    )


def kept_files(job: LiveJob) -> set[str]:
    """Weight files that a sampler of the job would need if it was started again."""
    return {weights["path"] for weights in job.held_weights.values()}


def _keep(job: LiveJob, names: list[str], weights: dict[str, Any]) -> None:
    """Remembers what these samplers hold now, and removes files that none of them needs any more."""
    before = kept_files(job)
    job.held_weights |= dict.fromkeys(names, weights)
    for path in before - kept_files(job):
        Path(path).unlink(missing_ok=True)
    if names:
        job.changed()
