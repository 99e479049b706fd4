"""Calls to a job's samplers: generate, generate as a stream, forget the prefix cache."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from drydock.client.call import Call, open_call, start_call
from drydock.client.connection import DATA_DEADLINE_S
from drydock.client.forward_backward import RESPONSE_OPTIONS
from drydock.client.generation_stream import StreamedPrompts, stream_events
from drydock.client.polling import result_of
from drydock.client.request_calls import RequestCalls
from drydock.client.results import Generation, read_generations
from drydock.client.server_events import next_within
from drydock.client.transport import Refused, job_path
from drydock.errors import DrydockError, RequestFailed
from drydock.wire.chunks import split_request
from drydock.wire.frame import encode_frame
from drydock.wire.rest import SamplingParams

type Prompt = Sequence[int] | NDArray[np.integer] | str

REPEATS: Final = 5
"""How often sampling that a restart or a lost worker cut off is asked for again."""
_CUT_OFF: Final = frozenset({"ServiceRestarted", "WorkerLost"})
_CANCEL_S: Final = 5.0
_ALWAYS_SENT: Final = ("max_tokens", "temperature", "top_p", "top_k")
"""Sampling parameters whose defaults are this project's own, so that they are never left to the server."""


class SamplingCalls(RequestCalls):
    """The samplers' side of the data plane."""

    async def generate(
        self,
        job_id: str,
        prompts: Sequence[Prompt],
        sampling_params: SamplingParams,
        *,
        routing_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> list[Generation]:
        """Sample one completion per prompt, in order; token prompts are used exactly as given.

        routing_key: prompts with the same key share a replica and so its prefix cache. Sampling that ended because
        the service was restarted or a worker was lost is asked for again: nothing depends on how often it runs.
        Cancelling the call, or its deadline, cancels the sampling at the service.
        """
        frame = encode_frame(self._generate_body(prompts, sampling_params, routing_key), RESPONSE_OPTIONS)
        with_logprobs = sampling_params.logprobs is not None
        async with open_call("generate", job_id, deadline_s) as call:
            cut_off: RequestFailed | None = None
            for repeats_left in range(REPEATS, -1, -1):
                try:
                    result = await self._generate_once(call, job_id, frame)
                    return call.read(lambda result: read_generations(result, len(prompts), with_logprobs), result)
                except RequestFailed as error:
                    if error.error_type not in _CUT_OFF or not repeats_left:
                        raise
                    cut_off = error
                    call.last_failure = str(error)
                except Refused as error:
                    if cut_off is not None and error.status == 410:
                        raise cut_off from error
                    raise
        raise AssertionError("unreachable: the last pass returns or raises")

    async def generate_stream(
        self,
        job_id: str,
        prompts: Sequence[Prompt],
        sampling_params: SamplingParams,
        *,
        routing_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> AsyncGenerator[tuple[int, Generation]]:
        """(index of the prompt, its completion), as the prompts finish.

        Prompts that failed are named in a RequestFailed after all others have been handed out. Leaving the iteration
        early (`aclose`) cancels what is still being sampled. Cut-off sampling is taken up again as by `generate`, for
        the prompts that are still open.
        """
        call = start_call("generate-stream", job_id, deadline_s)
        state = StreamedPrompts(len(prompts), sampling_params.logprobs is not None)
        for repeats_left in range(REPEATS, -1, -1):
            indices = state.open_indices()
            body = self._generate_body([prompts[index] for index in indices], sampling_params, routing_key)
            async with call.limited():
                accepted = await self._transport.send(
                    call,
                    "POST",
                    job_path(job_id, "/generate-stream"),
                    content=encode_frame(body),
                    headers={"Content-Type": "application/octet-stream", "Idempotency-Key": str(uuid.uuid4())},
                )
            request_id = call.read(lambda answer: str(answer["request_id"]), accepted)
            over = False
            try:
                for follow_events in (not self._hosted, False):
                    events = stream_events(
                        self._transport,
                        call,
                        job_id,
                        request_id,
                        follow_events=follow_events,
                        cursor="" if self._hosted or follow_events else "0",
                    )
                    async with contextlib.aclosing(events):
                        while (event := await next_within(call, events)) is not None:
                            for found in state.take(call, event, indices):
                                yield found
                    if not state.untold or self._hosted:
                        break
                over = True
            except Refused as error:
                if error.status != 404 or self._hosted:
                    raise
                over = True
                state.forgotten()
            finally:
                if not over:
                    await self._cancel_quietly(job_id, request_id)
            failure = state.failure(call, request_id)
            if failure is None:
                return
            if failure.error_type not in _CUT_OFF or not repeats_left:
                raise failure
            call.last_failure = str(failure)

    async def reset_prefix_cache(self, job_id: str, *, deadline_s: float = 120.0) -> None:
        """Make the job's samplers forget the keys and values of all prefixes."""
        payload = {"drain": True, "timeout_s": 60.0, "retry_interval_s": 0.1}
        body = {"operation_type": "reset-prefix-cache", "sub_job_type": "sampling", "payload": payload}
        async with open_call("reset-prefix-cache", job_id, deadline_s) as call:
            await self._operate(call, job_id, body)

    async def _generate_once(self, call: Call, job_id: str, frame: bytes) -> dict[str, Any]:
        headers = self._headers(call, "application/octet-stream")
        bodies = split_request(
            frame, operation="generate", group_id=str(uuid.uuid4()), force=False, max_bytes=self._max_body_bytes
        )
        if len(bodies) > 1:
            del headers["Idempotency-Key"]  # the chunk group is the identity
        accepted: dict[str, Any] = {}
        try:
            for part in bodies:
                accepted = await self._transport.send(
                    call, "POST", job_path(job_id, "/generate"), content=part, headers=headers
                )
        except asyncio.CancelledError:
            await self._withdraw(job_id, bodies, headers)
            raise
        try:
            return await result_of(self._transport, call, job_id, accepted, self._hold_s)
        except asyncio.CancelledError:
            await self._cancel_quietly(job_id, str(accepted.get("request_id")))
            raise
        except Refused as error:
            if error.status != 404 or self._hosted:
                raise
            # accepted a moment ago and unknown now: the service was restarted before it had written the request down
            raise RequestFailed(f"{call.label}: the service no longer knows the request", "ServiceRestarted") from error

    async def _withdraw(self, job_id: str, bodies: Sequence[bytes], headers: dict[str, str]) -> None:
        """Cancel a request whose POST was broken off: its id is found by its Idempotency-Key. Best effort."""
        if self._hosted or len(bodies) > 1:
            return
        unheld = {name: value for name, value in headers.items() if name != "Prefer"}
        with contextlib.suppress(DrydockError, RuntimeError):
            async with open_call("generate", job_id, _CANCEL_S) as call:
                accepted = await self._transport.send(
                    call, "POST", job_path(job_id, "/generate"), content=bodies[0], headers=unheld
                )
            await self._cancel_quietly(job_id, str(accepted.get("request_id")))

    async def _cancel_quietly(self, job_id: str, request_id: str) -> None:
        """Best effort, since the caller is leaving; a RuntimeError says that the client was closed before."""
        with contextlib.suppress(DrydockError, RuntimeError):
            await self.cancel_request(job_id, request_id, deadline_s=_CANCEL_S)

    def _generate_body(
        self, prompts: Sequence[Prompt], params: SamplingParams, routing_key: str | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "prompts": [prompt if isinstance(prompt, str) else _token_array(prompt) for prompt in prompts],
            "sampling_params": self._sampling_dict(params),
        }
        return body if routing_key is None else body | {"routing_key": routing_key}

    def _sampling_dict(self, params: SamplingParams) -> dict[str, Any]:
        given = params.model_dump(exclude_defaults=True)
        fields = {**params.model_dump(include=set(_ALWAYS_SENT)), **given}
        if self._hosted:
            fields.pop("compact_logprobs", None)
        elif "logprobs" in fields or "prompt_logprobs" in fields:
            fields["compact_logprobs"] = True
        return fields


def _token_array(prompt: Sequence[int] | NDArray[np.integer]) -> NDArray[np.integer]:
    array = np.asarray(prompt, np.int64)
    return array.astype(np.int32) if array.size == 0 or array.max() <= np.iinfo(np.int32).max else array
