"""A generate request: which replica samples which prompt, and the results put back in order.

Prompts with a routing key go to the replica that the key hashes to, so that a rollout's turns meet their own prefix
cache; prompts without one go to the least loaded. A replica that is being started again after its process died (its
cache is gone with it) gets neither as long as another is there, unless the caller is `strict`: then the key's replica
is waited for, whatever becomes of it.
"""

import asyncio
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drydock.service.live_job import LiveJob
from drydock.service.meters import Meter, Metered
from drydock.service.problems import Refusal
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.row_limits import RowLimits
from drydock.service.worker_group import WorkerGroup
from drydock.wire.rest import GenerateBody


def check(job: LiveJob, body: GenerateBody) -> None:
    """Refuses what no engine could serve. Raises Refusal 422 naming the field."""
    if not body.prompts:
        raise Refusal(422, "prompts: at least one prompt is needed")
    spec = job.sampling()[0].spec
    limits = RowLimits.of(spec.sub_job_id, spec.config)
    limit = limits.max_seq_len
    for index, prompt in enumerate(body.prompts):
        where = f"prompts.{index}"
        if not prompt:
            raise Refusal(422, f"{where}: the prompt is empty")
        if isinstance(prompt, list) and limit is not None and len(prompt) >= limit:
            raise Refusal(422, f"{where}: {len(prompt)} tokens do not fit max_seq_len {limit} with room to sample")
        if isinstance(prompt, list) and (token := limits.outside(prompt)) is not None:
            raise Refusal(422, f"{where}: token {token} is outside the vocabulary of {limits.vocab_size}")


async def generate(job: LiveJob, body: GenerateBody, record: RequestRecord) -> Outcome:
    """Samples one completion per prompt: {"results": [...]} in the order of the prompts."""
    shares: dict[WorkerGroup, list[int]] = {}
    for index in range(len(body.prompts)):
        worker = replica(job.sampling(), body.routing_key_of(index), shares, strict=body.strict)
        shares.setdefault(worker, []).append(index)
    record.arguments = {"shares": {worker.spec.sub_job_id: indices for worker, indices in shares.items()}}
    return await _collect(shares, body, record)


async def resume(job: LiveJob, record: RequestRecord) -> Outcome:
    """As `generate`, for a request that an earlier API process gave to the workers."""
    shares = (record.arguments or {}).get("shares") or {}
    return await _collect({job.workers[name]: indices for name, indices in shares.items()}, None, record)


async def _collect(shares: dict[WorkerGroup, list[int]], body: GenerateBody | None, record: RequestRecord) -> Outcome:
    replies = [sample(worker, body, indices, record) for worker, indices in shares.items()]
    results: dict[int, dict] = {}
    metered: list[Metered] = []
    for (worker, indices), part in zip(shares.items(), await asyncio.gather(*replies), strict=True):
        results |= zip(indices, part, strict=True)
        metered += sampled(worker.spec.sub_job_id, part)
    return Outcome({"results": [results[index] for index in sorted(results)]}, metered=tuple(metered))


def sampled(sub_job_id: str, results: Iterable[dict[str, Any]]) -> list[Metered]:
    """What the sampler used for these results."""
    prompt_tokens, tokens = 0, 0
    for result in results:
        prompt_tokens += result.get("prompt_tokens", 0)
        tokens += sum(len(sample["token_ids"]) for sample in result.get("samples") or [result])
    return [
        Metered(Meter.PROMPT_TOKENS, prompt_tokens, sub_job_id),
        Metered(Meter.SAMPLED_TOKENS, tokens, sub_job_id),
    ]


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


async def sample(
    worker: WorkerGroup, body: GenerateBody | None, indices: list[int], record: RequestRecord, *, streamed: bool = False
) -> list[dict]:
    """The results of the prompts at `indices`, sampled by one replica; without a body it has them already.

    streamed: have the worker tell tokens as they come (`WorkerGroup.heard`).
    """
    part = str(indices[0])
    if body is None:
        return (await record.ask(worker, "generate", part=part)).header["result"]
    params = [body.params_of(index) for index in indices]
    shared = all(item is params[0] for item in params)
    reply = await record.ask(
        worker,
        "generate",
        part=part,
        request_id=record.request_id,
        prompts=[body.prompts[index] for index in indices],
        params=[item.model_dump(exclude_defaults=True) for item in (params[:1] if shared else params)],
        routing_keys=[body.routing_key_of(index) for index in indices],
        streamed=streamed,
    )
    return reply.header["result"]


def replica(
    workers: Sequence[WorkerGroup],
    routing_key: str | None,
    shares: Mapping[WorkerGroup, Sequence[int]],
    *,
    strict: bool = False,
) -> WorkerGroup:
    """Who samples the next prompt; `shares` are the prompts that this request has given out already."""
    if routing_key is not None:
        own = workers[zlib.crc32(routing_key.encode()) % len(workers)]
        if strict or own.ready:
            return own
    ready = [worker for worker in workers if worker.ready] or workers
    return min(ready, key=lambda worker: worker.open_calls + len(shares.get(worker, ())))
