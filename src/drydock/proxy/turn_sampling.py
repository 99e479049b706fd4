"""How the turns of one rollout are sampled: with the run's parameters, in turn, within limits of length and time."""

import math
import time
from collections.abc import Sequence

from drydock.deadline import deadline
from drydock.errors import ServiceError
from drydock.proxy.admission import Admission
from drydock.proxy.recorder import Timing
from drydock.proxy.sampler import SampledTurn, Sampler
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_params import TurnParams
from drydock.wire.rest import SamplingParams


class TurnSampling:
    """The sampler as one rollout has it."""

    def __init__(self, rollout_id: str, sampler: Sampler, settings: ProxySettings, admission: Admission) -> None:
        self._rollout_id = rollout_id
        self._sampler = sampler
        self._settings = settings
        self._admission = admission
        self._params = TurnParams(rollout_id, settings)

    def params(self, prompt_tokens: int, asked_tokens: int | None) -> SamplingParams:
        """Parameters of the next turn; see `TurnParams.next`."""
        return self._params.next(prompt_tokens, asked_tokens)

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
