"""The sampler behind the training service: one generate call per turn, token ids both ways."""

from collections.abc import Sequence

from drydock.client.training_client import TrainingClient
from drydock.errors import RequestFailed
from drydock.proxy.sampler import SampledTurn
from drydock.wire.rest import SamplingParams


class ServiceSampler:
    """Samples with the job's sampling sub-job. The client is the caller's; nothing is retried here."""

    def __init__(self, client: TrainingClient, job_id: str, *, deadline_s: float = 1800.0) -> None:
        """deadline_s: longest wait for one turn; the proxy's own `call_deadline_s` may end it earlier."""
        self._client = client
        self._job_id = job_id
        self._deadline_s = deadline_s

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        """Sample one turn; raises a ServiceError when the service fails or ends the turn unfinished."""
        generations = await self._client.generate(
            self._job_id, [prompt_ids], params, routing_key=routing_key, deadline_s=self._deadline_s
        )
        turn = generations[0]
        if turn.finish_reason not in ("stop", "length"):
            raise RequestFailed(f"generate for job {self._job_id} ended the turn with {turn.finish_reason!r}")
        return SampledTurn(
            tuple(turn.token_ids), tuple(turn.logprobs), turn.policy_version, turn.finish_reason, turn.text
        )
