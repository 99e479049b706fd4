"""Sync face of the client, for scripts and notebooks: the same calls, blocking.

One thread runs an event loop that owns the connections; each method hands its coroutine over and waits. An interrupt
while waiting cancels the call. Code that runs many calls at once wants the async client.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from drydock.client.results import ForwardBackwardResult, Generation, SaveResult, StepResult, WeightSync
from drydock.client.training_client import CONTROL_DEADLINE_S, DATA_DEADLINE_S, TrainingClient, hosted_url
from drydock.wire.rest import Capacity, Job, JobCreate, SamplingParams


class SyncTrainingClient:
    """Blocking calls of the training API; a context manager. Methods are those of `TrainingClient`."""

    def __init__(self, base_url: str, **settings: Any) -> None:
        """`settings` are those of `TrainingClient`."""
        self._client = TrainingClient(base_url, **settings)

    @classmethod
    def from_pat(cls, host: str, pat: str | SecretStr, **settings: Any) -> Self:
        """Client of the hosted service."""
        return cls(hosted_url(host), token=pat, hosted=True, **settings)

    def __repr__(self) -> str:
        return f"Sync{self._client!r}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="training-client", daemon=True)
        self._thread.start()
        self._wait(self._client.__aenter__())
        return self

    def __exit__(self, *exc_info: Any) -> None:
        try:
            self._wait(self._client.__aexit__(*exc_info))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def create_job(self, body: JobCreate, *, deadline_s: float = CONTROL_DEADLINE_S) -> Job:
        """Create a job."""
        return self._wait(self._client.create_job(body, deadline_s=deadline_s))

    def get_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> Job:
        """A job's present state."""
        return self._wait(self._client.get_job(job_id, deadline_s=deadline_s))

    def list_jobs(
        self, status: str | None = None, comment: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> list[Job]:
        """Jobs, filtered."""
        return self._wait(self._client.list_jobs(status, comment, deadline_s=deadline_s))

    def cancel_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> None:
        """Cancel a job."""
        self._wait(self._client.cancel_job(job_id, deadline_s=deadline_s))

    def capacity(self, hardware: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S) -> Capacity:
        """The account's GPUs."""
        return self._wait(self._client.capacity(hardware, deadline_s=deadline_s))

    def wait_for_job(self, job_id: str, deadline_s: float) -> Job:
        """Wait until the job is running."""
        return self._wait(self._client.wait_for_job(job_id, deadline_s))

    def generate(
        self,
        job_id: str,
        prompts: Sequence[Sequence[int] | NDArray[np.integer] | str],
        sampling_params: SamplingParams,
        *,
        routing_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> list[Generation]:
        """Sample one completion per prompt."""
        return self._wait(
            self._client.generate(job_id, prompts, sampling_params, routing_key=routing_key, deadline_s=deadline_s)
        )

    def forward_backward(
        self, job_id: str, batch: Mapping[str, Any], deadline_s: float = DATA_DEADLINE_S
    ) -> ForwardBackwardResult:
        """Accumulate gradients of one batch."""
        return self._wait(self._client.forward_backward(job_id, batch, deadline_s))

    def step(self, job_id: str, learning_rate: float | None = None, deadline_s: float = DATA_DEADLINE_S) -> StepResult:
        """Apply the accumulated gradients."""
        return self._wait(self._client.step(job_id, learning_rate, deadline_s))

    def save(
        self,
        job_id: str,
        *,
        checkpoint_id: str | None = None,
        checkpoint_type: str = "resumable",
        deadline_s: float = DATA_DEADLINE_S,
    ) -> SaveResult:
        """Save a checkpoint."""
        return self._wait(
            self._client.save(
                job_id, checkpoint_id=checkpoint_id, checkpoint_type=checkpoint_type, deadline_s=deadline_s
            )
        )

    def weight_sync(
        self,
        job_id: str,
        source_sub_job_id: str,
        target_sub_job_ids: Sequence[str],
        deadline_s: float = DATA_DEADLINE_S,
    ) -> WeightSync:
        """Give the trainer's weights to the samplers."""
        return self._wait(self._client.weight_sync(job_id, source_sub_job_id, target_sub_job_ids, deadline_s))

    def reset_prefix_cache(self, job_id: str, *, deadline_s: float = 120.0) -> None:
        """Make the job's samplers forget all prefixes."""
        self._wait(self._client.reset_prefix_cache(job_id, deadline_s=deadline_s))

    def _wait[R](self, call: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
