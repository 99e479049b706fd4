"""Calls to a job's trainer: forward-backward, forward, step; and weight sync from it to the samplers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from drydock.client.call import open_call
from drydock.client.connection import DATA_DEADLINE_S
from drydock.client.forward import TokenScores, forward_bodies, joined, read_scores
from drydock.client.forward_backward import chunk_group_id, post_batch
from drydock.client.polling import result_of
from drydock.client.results import ForwardBackwardResult, StepResult, WeightSync
from drydock.client.sampling_calls import SamplingCalls


class TrainingCalls(SamplingCalls):
    """The trainer's side of the data plane."""

    async def forward_backward(
        self,
        job_id: str,
        batch: Mapping[str, Any],
        deadline_s: float = DATA_DEADLINE_S,
        *,
        idempotency_key: str | None = None,
    ) -> ForwardBackwardResult:
        """Accumulate gradients of one batch of arrays or nested lists ({"kwargs", "context"?, "processing"?}).

        idempotency_key: the same key with the same batch gives the first call's result and accumulates nothing more,
        so that a caller which lost its own process can ask again.
        """
        async with open_call("forward-backward", job_id, deadline_s) as call:
            accepted = await post_batch(
                self._transport,
                call,
                job_id,
                batch,
                hold_s=self._hold_s,
                group_id=chunk_group_id(idempotency_key),
                max_bytes=self._max_body_bytes,
            )
            result = await result_of(self._transport, call, job_id, accepted, self._hold_s)
            return call.read(ForwardBackwardResult.from_result, result)

    async def forward(
        self,
        job_id: str,
        batch: Mapping[str, Any],
        *,
        sub_job_id: str | None = None,
        entropy: bool = False,
        temperature: float | NDArray[np.floating] | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> TokenScores:
        """Log-probs of given rows without gradients, under the weights that a sub-job holds now.

        batch: {"kwargs": {"input_ids", "attention_mask"?}} with rows of one length. sub_job_id: the trainer or a
        log-probability sub-job; None: the trainer. entropy: that of each next-token distribution as well.
        temperature: logits are divided by it, one number or [batch, seq] predict-next; 1 where it is None.
        """
        target = {"sub_job_id": sub_job_id} if sub_job_id is not None else {"sub_job_type": "training"}
        post = ["compute_entropy_and_logprobs"] if entropy else []
        if temperature is not None:
            batch = {**batch, "kwargs": {**batch.get("kwargs", {}), "temperature": np.asarray(temperature)}}
        parts: list[TokenScores] = []
        async with open_call("forward", job_id, deadline_s) as call:
            for body in forward_bodies(batch, self._max_body_bytes, target=target, post=post):
                parts.append(call.read(partial(read_scores, entropy=entropy), await self._operate(call, job_id, body)))
            return joined(parts)

    async def step(
        self,
        job_id: str,
        learning_rate: float | None = None,
        deadline_s: float = DATA_DEADLINE_S,
        *,
        idempotency_key: str | None = None,
    ) -> StepResult:
        """Apply the accumulated gradients once, with `learning_rate` from this step on where it is given.

        idempotency_key: the same key with the same rate gives the first call's result and steps no further.
        """
        body = {} if learning_rate is None else {"learning_rate": learning_rate}
        return await self._run(
            StepResult.from_result, "step", job_id, "/step", body, deadline_s, self._harmful_resend, idempotency_key
        )

    async def weight_sync(
        self,
        job_id: str,
        source_sub_job_id: str,
        target_sub_job_ids: Sequence[str],
        deadline_s: float = DATA_DEADLINE_S,
        *,
        weight_format: Literal["lora", "hf", "vllm"] | None = None,
    ) -> WeightSync:
        """Give the trainer's weights to the samplers.

        weight_format: "lora" sends the adapter alone, which a trainer with an adapter does unless told otherwise; "hf"
        and "vllm" send whole weights, an adapter added in. A later "lora" brings the sampler's first model back.
        A server that confirms no fingerprint is also told to forget its prefix cache, since nothing shows that it did.
        """
        payload: dict[str, Any] = {
            "source_sub_job_id": source_sub_job_id,
            "target_sub_job_ids": list(target_sub_job_ids),
        }
        payload |= {"weight_format": weight_format} if weight_format else {}
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
