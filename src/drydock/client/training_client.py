"""Async client of the training API: one object for our service and for the hosted one.

Our service is reached by base URL and token, the hosted one by host and programmatic access token (`from_pat`). The
same calls work on both: what only ours understands (held answers, idempotency keys, compact log-probs) is either
harmless elsewhere or left out. Nothing here needs torch. Each method has a deadline and names itself, the job and the
server's message in every error.

A lost answer and a resend may not step an optimizer twice. With our service an `Idempotency-Key`, the same over all
attempts, sees to that; the hosted one ignores it, so there a step whose answer was lost fails instead.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from drydock.client.call import Call, open_call
from drydock.client.forward_backward import post_batch
from drydock.client.polling import prefer_wait, result_of
from drydock.client.results import (
    ForwardBackwardResult,
    Generation,
    SaveResult,
    StepResult,
    WeightSync,
    read_generations,
)
from drydock.client.transport import Refused, Resend, RetryPolicy, Transport, job_path
from drydock.errors import JobFailed
from drydock.wire.chunks import MAX_BODY_BYTES, split_request
from drydock.wire.frame import encode_frame
from drydock.wire.rest import Capacity, Job, JobCreate, SamplingParams
from drydock.wire.status import JobStatus

CONTROL_DEADLINE_S: Final = 60.0
DATA_DEADLINE_S: Final = 1800.0
_JOB_FIRST_INTERVAL_S: Final = 0.2
_JOB_LAST_INTERVAL_S: Final = 3.0


class TrainingClient:
    """Calls of the training API; an async context manager.

    database, schema, endpoint: names in the API's path; our service takes any.
    hold_s: how long one answer may be held by the server. max_body_bytes: larger bodies are sent in chunks.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | SecretStr | None = None,
        database: str = "drydock",
        schema: str = "PUBLIC",
        endpoint: str = "cortex-training",
        hold_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        verify_ssl: bool = True,
        retry: RetryPolicy | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        hosted: bool = False,
    ) -> None:
        """Raises UserError when `base_url` is no http(s) URL. `hosted`: leave out what only our service understands."""
        self._hold_s = hold_s
        self._hosted = hosted
        self._max_body_bytes = max_body_bytes
        self._transport = Transport(
            base_url,
            f"/api/v2/databases/{database}/schemas/{schema}/{endpoint}",
            token=token.get_secret_value() if isinstance(token, SecretStr) else token,
            pat=hosted,
            verify_ssl=verify_ssl,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=hold_s + 60.0,
            retry=retry,
        )

    @classmethod
    def from_pat(cls, host: str, pat: str | SecretStr, **settings: Any) -> Self:
        """Client of the hosted service; `host` may carry a port, `settings` are those of the constructor."""
        return cls(hosted_url(host), token=pat, hosted=True, **settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.address})"

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._transport.__aexit__(*exc_info)

    async def create_job(self, body: JobCreate, *, deadline_s: float = CONTROL_DEADLINE_S) -> Job:
        """Create a job; it is not yet running when this returns (see `wait_for_job`)."""
        async with open_call("create job", body.job_id, deadline_s) as call:
            answer = await self._transport.send(
                call,
                "POST",
                "",
                content=body.model_dump_json(exclude_unset=True).encode(),
                headers={"Content-Type": "application/json"},
                resend=Resend.UNSENT,
            )
            return call.read(Job.model_validate, answer)

    async def get_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> Job:
        """A job's present state."""
        async with open_call("get job", job_id, deadline_s) as call:
            return call.read(Job.model_validate, await self._transport.send(call, "GET", job_path(job_id)))

    async def list_jobs(
        self, status: str | None = None, comment: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> list[Job]:
        """All jobs, or those with the given status and exactly the given comment."""
        params = {name: value for name, value in (("status", status), ("comment", comment)) if value is not None}
        async with open_call("list jobs", None, deadline_s) as call:
            answer = await self._transport.send(call, "GET", "", params=params or None)
            jobs = [call.read(Job.model_validate, entry) for entry in answer.get("jobs") or ()]
        return [
            job
            for job in jobs
            if (status is None or job.status == JobStatus.parse(status)) and (comment is None or job.comment == comment)
        ]

    async def cancel_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> None:
        """Cancel a job; no error when it is over already."""
        async with open_call("cancel job", job_id, deadline_s) as call:
            try:
                await self._transport.send(call, "POST", job_path(job_id, ":cancel"))
            except Refused as error:
                if error.status != 409:
                    raise

    async def capacity(self, hardware: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S) -> Capacity:
        """The account's GPUs, all or of one kind."""
        async with open_call("capacity", None, deadline_s) as call:
            params = {"hardware": hardware} if hardware else None
            answer = await self._transport.send(call, "GET", "/capacity", params=params)
            return call.read(Capacity.model_validate, answer)

    async def wait_for_job(self, job_id: str, deadline_s: float) -> Job:
        """Wait until the job is running. Raises JobFailed, with the job's reason, when it ends instead."""
        interval_s = _JOB_FIRST_INTERVAL_S
        async with open_call("wait for job", job_id, deadline_s) as call:
            while True:
                job = call.read(Job.model_validate, await self._transport.send(call, "GET", job_path(job_id)))
                if job.status is JobStatus.RUNNING:
                    return job
                if job.status.terminal:
                    raise JobFailed(f"job {job_id} is {job.status} and will not run: {job.reason or 'no reason given'}")
                call.last_failure = f"it is still {job.status}"
                await asyncio.sleep(interval_s)
                interval_s = min(interval_s * 1.25, _JOB_LAST_INTERVAL_S)

    async def generate(
        self,
        job_id: str,
        prompts: Sequence[Sequence[int] | NDArray[np.integer] | str],
        sampling_params: SamplingParams,
        *,
        routing_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> list[Generation]:
        """Sample one completion per prompt, in order; token prompts are used exactly as given.

        routing_key: prompts with the same key share a replica and so its prefix cache.
        """
        body: dict[str, Any] = {
            "prompts": [prompt if isinstance(prompt, str) else _token_array(prompt) for prompt in prompts],
            "sampling_params": self._sampling_dict(sampling_params),
        }
        if routing_key is not None:
            body["routing_key"] = routing_key
        frame = encode_frame(body, {"response_options": {"format": "dssst1", "delivery": "chunked"}})
        async with open_call("generate", job_id, deadline_s) as call:
            headers = self._headers(call, "application/octet-stream")
            bodies = split_request(
                frame, operation="generate", group_id=str(uuid.uuid4()), force=False, max_bytes=self._max_body_bytes
            )
            if len(bodies) > 1:
                del headers["Idempotency-Key"]  # the chunk group is the identity
            accepted: dict[str, Any] = {}
            for part in bodies:
                accepted = await self._transport.send(
                    call, "POST", job_path(job_id, "/generate"), content=part, headers=headers
                )
            result = await result_of(self._transport, call, job_id, accepted, self._hold_s)
            with_logprobs = sampling_params.logprobs is not None
            return call.read(lambda result: read_generations(result, len(prompts), with_logprobs), result)

    async def forward_backward(
        self, job_id: str, batch: Mapping[str, Any], deadline_s: float = DATA_DEADLINE_S
    ) -> ForwardBackwardResult:
        """Accumulate gradients of one batch of arrays or nested lists ({"kwargs", "context"?, "processing"?})."""
        async with open_call("forward-backward", job_id, deadline_s) as call:
            accepted = await post_batch(
                self._transport, call, job_id, batch, hold_s=self._hold_s, max_bytes=self._max_body_bytes
            )
            result = await result_of(self._transport, call, job_id, accepted, self._hold_s)
            return call.read(ForwardBackwardResult.from_result, result)

    async def step(
        self, job_id: str, learning_rate: float | None = None, deadline_s: float = DATA_DEADLINE_S
    ) -> StepResult:
        """Apply the accumulated gradients once, with `learning_rate` from this step on where it is given."""
        body = {} if learning_rate is None else {"learning_rate": learning_rate}
        resend = Resend.UNSENT if self._hosted else Resend.ALWAYS
        return await self._run(StepResult.from_result, "step", job_id, "/step", body, deadline_s, resend)

    async def save(
        self,
        job_id: str,
        *,
        checkpoint_id: str | None = None,
        checkpoint_type: str = "resumable",
        deadline_s: float = DATA_DEADLINE_S,
    ) -> SaveResult:
        """Save a checkpoint: "resumable" (weights and training state) or "weights-only"."""
        body = {"checkpoint_type": checkpoint_type} | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})
        return await self._run(SaveResult.from_result, "save", job_id, "/save", body, deadline_s)

    async def weight_sync(
        self,
        job_id: str,
        source_sub_job_id: str,
        target_sub_job_ids: Sequence[str],
        deadline_s: float = DATA_DEADLINE_S,
    ) -> WeightSync:
        """Give the trainer's weights to the samplers.

        A server that confirms no fingerprint is also told to forget its prefix cache, since nothing shows that it did.
        """
        payload = {"source_sub_job_id": source_sub_job_id, "target_sub_job_ids": list(target_sub_job_ids)}
        body = {
            "operation_type": "weight-sync",
            "sub_job_id": source_sub_job_id,
            "sub_job_type": "training",
            "payload": payload,
        }
        synced = await self._run(WeightSync.from_result, "weight-sync", job_id, "/operation", body, deadline_s)
        if synced.fingerprint is None:
            await self.reset_prefix_cache(job_id)
        return synced

    async def reset_prefix_cache(self, job_id: str, *, deadline_s: float = 120.0) -> None:
        """Make the job's samplers forget the keys and values of all prefixes."""
        payload = {"drain": True, "timeout_s": 60.0, "retry_interval_s": 0.1}
        body = {"operation_type": "reset-prefix-cache", "sub_job_type": "sampling", "payload": payload}
        async with open_call("reset-prefix-cache", job_id, deadline_s) as call:
            answer = await self._post_json(call, job_id, "/operation", body, Resend.ALWAYS)
            if answer.get("request_id"):
                await result_of(self._transport, call, job_id, answer, self._hold_s)

    async def _run[R](
        self,
        reader: Callable[[dict[str, Any]], R],
        name: str,
        job_id: str,
        path: str,
        body: Mapping[str, Any],
        deadline_s: float,
        resend: Resend = Resend.ALWAYS,
    ) -> R:
        async with open_call(name, job_id, deadline_s) as call:
            accepted = await self._post_json(call, job_id, path, body, resend)
            return call.read(reader, await result_of(self._transport, call, job_id, accepted, self._hold_s))

    async def _post_json(
        self, call: Call, job_id: str, path: str, body: Mapping[str, Any], resend: Resend
    ) -> dict[str, Any]:
        return await self._transport.send(
            call,
            "POST",
            job_path(job_id, path),
            content=json.dumps(body).encode(),
            headers=self._headers(call, "application/json"),
            resend=resend,
        )

    def _headers(self, call: Call, content_type: str) -> dict[str, str]:
        wait = prefer_wait(call, self._hold_s)
        return {"Content-Type": content_type, "Idempotency-Key": str(uuid.uuid4()), **wait}

    def _sampling_dict(self, params: SamplingParams) -> dict[str, Any]:
        fields = params.model_dump(exclude_none=True)
        for name in ("stop", "stop_token_ids", "ignore_eos", "compact_logprobs"):
            if not fields[name]:
                del fields[name]
        if self._hosted:
            fields.pop("compact_logprobs", None)
        elif "logprobs" in fields:
            fields["compact_logprobs"] = True
        return fields


def hosted_url(host: str) -> str:
    """Base URL of a host name, which may carry a port, a scheme or a trailing slash."""
    return f"https://{host.removeprefix('https://').rstrip('/')}"


def _token_array(prompt: Sequence[int] | NDArray[np.integer]) -> NDArray[np.integer]:
    array = np.asarray(prompt, np.int64)
    return array.astype(np.int32) if array.size == 0 or array.max() <= np.iinfo(np.int32).max else array
