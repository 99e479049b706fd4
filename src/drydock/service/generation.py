"""A generate request: which replica samples which prompt, and the results put back in order.

Prompts with a routing key go to the replica that the key hashes to, so that a rollout's turns meet their own prefix
cache; prompts without one go to the least loaded. Replicas live and die with their job, so a key's replica is there
whenever the job runs and `strict` has nothing left to forbid.
"""

import asyncio
import zlib
from collections.abc import Sequence

from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal
from drydock.service.request_table import Outcome, RequestRecord
from drydock.service.worker_group import WorkerGroup
from drydock.wire.rest import GenerateBody


def check(job: LiveJob, body: GenerateBody) -> None:
    """Refuses what no engine could serve. Raises Refusal 422 naming the field."""
    if not body.prompts:
        raise Refusal(422, "prompts: at least one prompt is needed")
    config = job.sampling()[0].spec.config.get("inference_config") or {}
    limit = config.get("max_seq_len")
    for index, prompt in enumerate(body.prompts):
        where = f"prompts.{index}"
        if not prompt:
            raise Refusal(422, f"{where}: the prompt is empty")
        if isinstance(prompt, list) and isinstance(limit, int | float) and len(prompt) >= limit:
            raise Refusal(422, f"{where}: {len(prompt)} tokens do not fit max_seq_len {int(limit)} with room to sample")
        logprobs = body.params_of(index).logprobs
        if logprobs is not None and logprobs > 1:
            raise Refusal(
                422,
                f"sampling_params.logprobs: {logprobs} asks for alternatives; only the sampled token's log-prob is "
                "returned (use 0 or 1)",
            )


async def generate(job: LiveJob, body: GenerateBody, record: RequestRecord) -> Outcome:
    """Samples one completion per prompt: {"results": [...]} in the order of the prompts."""
    shares: dict[WorkerGroup, list[int]] = {}
    for index in range(len(body.prompts)):
        worker = _replica(job.sampling(), body.routing_key_of(index), shares)
        shares.setdefault(worker, []).append(index)
    replies = [_share(worker, body, indices, record) for worker, indices in shares.items()]
    if len(replies) == 1:
        return Outcome({"results": await replies[0]})
    results: dict[int, dict] = {}
    for indices, part in zip(shares.values(), await asyncio.gather(*replies), strict=True):
        results |= zip(indices, part, strict=True)
    return Outcome({"results": [results[index] for index in range(len(body.prompts))]})


async def abort(job: LiveJob, request_id: str) -> None:
    """Tells every replica to drop the request's prompts; the request then ends as cancelled."""
    for worker in job.of_type("sampling"):
        await worker.notify("abort", request_id=request_id)


async def abandon(job: LiveJob, record: RequestRecord, grace_s: float) -> None:
    """Aborts a request whose caller hung up, unless it is asked for again within `grace_s`."""
    claims = record.claims
    await asyncio.sleep(grace_s)
    if record.claims == claims and not record.status.terminal:
        await abort(job, record.request_id)


async def _share(worker: WorkerGroup, body: GenerateBody, indices: list[int], record: RequestRecord) -> list[dict]:
    params = [body.params_of(index) for index in indices]
    shared = all(item is params[0] for item in params)
    reply = await worker.call(
        "generate",
        request_id=record.request_id,
        prompts=[body.prompts[index] for index in indices],
        params=[item.model_dump(exclude_defaults=True) for item in (params[:1] if shared else params)],
        routing_keys=[body.routing_key_of(index) for index in indices],
    )
    return reply.header["result"]


def _replica(
    workers: Sequence[WorkerGroup], routing_key: str | None, shares: dict[WorkerGroup, list[int]]
) -> WorkerGroup:
    if len(workers) == 1:
        return workers[0]
    if routing_key is not None:
        return workers[zlib.crc32(routing_key.encode()) % len(workers)]
    return min(workers, key=lambda worker: worker.open_calls + len(shares.get(worker, ())))
