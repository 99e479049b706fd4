"""Handing the trainer's weights to the samplers, with proof that they arrived.

The trainer writes a safetensors file with a fingerprint of names, shapes and bytes; each target finishes the
sequences it is decoding, loads the file, forgets its prefix cache and says which fingerprint it now holds. The
request fails unless all of them equal the trainer's. The file is removed whatever happens.
"""

import asyncio
import contextlib
import time
from pathlib import Path

from drydock.errors import EngineError
from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal
from drydock.service.request_table import Outcome, RequestRecord
from drydock.service.worker_group import WorkerGroup
from drydock.wire.rest import WeightSyncPayload

WEIGHT_FORMATS = ("vllm", "hf")


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
        targets.append(target)
    if payload.weight_format is not None and payload.weight_format not in WEIGHT_FORMATS:
        raise Refusal(501, f"payload.weight_format: {payload.weight_format!r} is not served; use one of vllm, hf")
    return source, targets


async def weight_sync(
    source: WorkerGroup, targets: list[WorkerGroup], weights_dir: Path, record: RequestRecord
) -> Outcome:
    """Runs one sync. Raises EngineError when a target holds other weights afterwards."""
    started = time.monotonic()
    path = weights_dir / f"{record.request_id}.safetensors"
    try:
        exported = (await source.call("export-weights", path=str(path))).header["result"]
        replies = await asyncio.gather(
            *(
                target.call(
                    "load-weights",
                    path=exported["path"],
                    policy_version=exported["policy_version"],
                    fingerprint=exported["fingerprint"],
                )
                for target in targets
            )
        )
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
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
