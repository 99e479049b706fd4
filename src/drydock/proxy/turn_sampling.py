"""How the turns of one rollout are sampled: with the run's parameters, in turn, within limits of length and time."""

import hashlib
import math
import time
from collections.abc import Sequence
from typing import Any

from drydock.chat.refusal import RequestRefused
from drydock.deadline import deadline
from drydock.errors import ServiceError
from drydock.proxy.admission import Admission
from drydock.proxy.recorder import Timing
from drydock.proxy.sampler import SampledTurn, Sampler
from drydock.proxy.settings import ProxySettings
from drydock.wire.rest import SamplingParams


class TurnSampling:
    """The sampler as one rollout has it."""

    def __init__(self, rollout_id: str, sampler: Sampler, settings: ProxySettings, admission: Admission) -> None:
        self._rollout_id = rollout_id
        self._sampler = sampler
        self._settings = settings
        self._admission = admission
        self._count = 0

    def params(self, prompt_tokens: int, asked_tokens: int | None) -> SamplingParams:
        """Parameters of the next turn; raises RequestRefused when the context has no room for a token of it.

        prompt_tokens: length of its prompt. asked_tokens: the longest turn that the agent wants.
        """
        room = self._settings.context_tokens - prompt_tokens
        if room < 1:
            raise RequestRefused(
                # litellm and the OpenHands SDK know a full context by its wording only, each by one half of this
                f"context length exceeded: this model's maximum context length is {self._settings.context_tokens} "
                f"tokens and the prompt has {prompt_tokens}",
                param="messages",
                code="context_length_exceeded",
            )
        sampling = self._settings.sampling
        changes: dict[str, Any] = {"max_tokens": min(room, self._settings.max_new_tokens, asked_tokens or room)}
        if sampling.seed is not None:
            root = f"{sampling.seed}/{self._rollout_id}/{self._count}"
            changes["seed"] = int.from_bytes(hashlib.sha256(root.encode()).digest()[:4]) >> 1
        self._count += 1
        return sampling.model_copy(update=changes)

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams) -> tuple[SampledTurn, Timing]:
        """Wait for a place, then sample one turn.

        Raises DeadlineExceeded that names which of the two took too long, ServiceError for a turn that could not be
        trained on, and whatever the sampler raises.
        """
        started_at, started = time.time(), time.perf_counter()
        async with self._admission.place(self._rollout_id, self._settings.admission_deadline_s):
            admitted = time.perf_counter()
            async with deadline(f"a sampled turn of rollout {self._rollout_id}", self._settings.call_deadline_s):
                turn = await self._sampler.sample(prompt_ids, params, routing_key=self._rollout_id)
        _check(turn, params)
        return turn, Timing(started_at, admitted - started, time.perf_counter() - admitted)


def _check(turn: SampledTurn, params: SamplingParams) -> None:
    if len(turn.logprobs) != len(turn.sampled_ids):
        raise ServiceError(f"the sampler returned {len(turn.logprobs)} log-probs for {len(turn.sampled_ids)} tokens")
    if len(turn.sampled_ids) > params.max_tokens:
        raise ServiceError(
            f"the sampler returned {len(turn.sampled_ids)} tokens where {params.max_tokens} were allowed"
        )
    if not all(map(math.isfinite, turn.logprobs)):
        raise ServiceError("the sampler returned a log-prob that is not finite")
