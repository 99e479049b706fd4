"""Sync face of the client, for scripts and notebooks: the same calls, blocking.

One thread runs an event loop that owns the connections; each method hands its coroutine over and waits. An interrupt
while waiting cancels the call. Code that runs many calls at once wants the async client.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from drydock.client.checkpoint_calls import DOWNLOAD_DEADLINE_S
from drydock.client.checkpoints import Checkpoint, CheckpointExport
from drydock.client.connection import CONTROL_DEADLINE_S, DATA_DEADLINE_S, hosted_url
from drydock.client.forward import TokenScores
from drydock.client.job_calls import ExperimentRun, Identity
from drydock.client.log_calls import FOREVER_S
from drydock.client.log_stream import LogPage
from drydock.client.results import ForwardBackwardResult, Generation, SaveResult, StepResult, WeightSync
from drydock.client.training_client import TrainingClient
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

    def create_job(
        self, body: JobCreate, *, idempotency_key: str | None = None, deadline_s: float = CONTROL_DEADLINE_S
    ) -> Job:
        """Create a job."""
        return self._wait(self._client.create_job(body, idempotency_key=idempotency_key, deadline_s=deadline_s))

    def get_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> Job:
        """A job's present state."""
        return self._wait(self._client.get_job(job_id, deadline_s=deadline_s))

    def list_jobs(
        self,
        status: str | None = None,
        comment: str | None = None,
        *,
        user: str | None = None,
        deadline_s: float = CONTROL_DEADLINE_S,
    ) -> list[Job]:
        """Jobs, filtered."""
        return self._wait(self._client.list_jobs(status, comment, user=user, deadline_s=deadline_s))

    def cancel_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> None:
        """Cancel a job."""
        self._wait(self._client.cancel_job(job_id, deadline_s=deadline_s))

    def capacity(self, hardware: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S) -> Capacity:
        """The account's GPUs."""
        return self._wait(self._client.capacity(hardware, deadline_s=deadline_s))

    def usage(
        self,
        by: Literal["job", "user", "day"] = "job",
        *,
        job_id: str | None = None,
        user: str | None = None,
        since: str | None = None,
        until: str | None = None,
        deadline_s: float = CONTROL_DEADLINE_S,
    ) -> dict[str, Any]:
        """What was used, summed by job, user or day."""
        return self._wait(
            self._client.usage(by, job_id=job_id, user=user, since=since, until=until, deadline_s=deadline_s)
        )

    def job_usage(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> dict[str, Any]:
        """What one job used."""
        return self._wait(self._client.job_usage(job_id, deadline_s=deadline_s))

    def whoami(self, *, deadline_s: float = CONTROL_DEADLINE_S) -> Identity:
        """User name and role."""
        return self._wait(self._client.whoami(deadline_s=deadline_s))

    def experiment_run(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> ExperimentRun:
        """The names under which the job's logs are filed."""
        return self._wait(self._client.experiment_run(job_id, deadline_s=deadline_s))

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

    def generate_stream(
        self,
        job_id: str,
        prompts: Sequence[Sequence[int] | NDArray[np.integer] | str],
        sampling_params: SamplingParams,
        *,
        routing_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> Iterator[tuple[int, Generation]]:
        """(index of the prompt, its completion), as the prompts finish."""
        return self._iterate(
            self._client.generate_stream(
                job_id, prompts, sampling_params, routing_key=routing_key, deadline_s=deadline_s
            )
        )

    def forward_backward(
        self,
        job_id: str,
        batch: Mapping[str, Any],
        deadline_s: float = DATA_DEADLINE_S,
        *,
        idempotency_key: str | None = None,
    ) -> ForwardBackwardResult:
        """Accumulate gradients of one batch."""
        return self._wait(self._client.forward_backward(job_id, batch, deadline_s, idempotency_key=idempotency_key))

    def forward(
        self,
        job_id: str,
        batch: Mapping[str, Any],
        *,
        sub_job_id: str | None = None,
        entropy: bool = False,
        temperature: float | NDArray[np.floating] | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> TokenScores:
        """Log-probs, and the entropy on request, without gradients."""
        return self._wait(
            self._client.forward(
                job_id,
                batch,
                sub_job_id=sub_job_id,
                entropy=entropy,
                temperature=temperature,
                deadline_s=deadline_s,
            )
        )

    def step(
        self,
        job_id: str,
        learning_rate: float | None = None,
        deadline_s: float = DATA_DEADLINE_S,
        *,
        idempotency_key: str | None = None,
    ) -> StepResult:
        """Apply the accumulated gradients."""
        return self._wait(self._client.step(job_id, learning_rate, deadline_s, idempotency_key=idempotency_key))

    def save(
        self,
        job_id: str,
        *,
        checkpoint_id: str | None = None,
        checkpoint_type: str = "resumable",
        merge: bool = False,
        idempotency_key: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> SaveResult:
        """Save a checkpoint."""
        return self._wait(
            self._client.save(
                job_id,
                checkpoint_id=checkpoint_id,
                checkpoint_type=checkpoint_type,
                merge=merge,
                idempotency_key=idempotency_key,
                deadline_s=deadline_s,
            )
        )

    def load(
        self,
        job_id: str,
        checkpoint_id: str,
        *,
        source_job_id: str | None = None,
        target_sub_job_id: str | None = None,
        deadline_s: float = DATA_DEADLINE_S,
    ) -> dict:
        """Have the job's trainer go on from a checkpoint."""
        return self._wait(
            self._client.load(
                job_id,
                checkpoint_id,
                source_job_id=source_job_id,
                target_sub_job_id=target_sub_job_id,
                deadline_s=deadline_s,
            )
        )

    def list_checkpoints(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> list[Checkpoint]:
        """The job's checkpoints, oldest first."""
        return self._wait(self._client.list_checkpoints(job_id, deadline_s=deadline_s))

    def export_checkpoint(
        self, job_id: str, checkpoint_id: str, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> CheckpointExport:
        """The addresses of a checkpoint's files."""
        return self._wait(self._client.export_checkpoint(job_id, checkpoint_id, deadline_s=deadline_s))

    def download_checkpoint(
        self, job_id: str, checkpoint_id: str, folder: Path, *, deadline_s: float = DOWNLOAD_DEADLINE_S
    ) -> list[Path]:
        """Export a checkpoint and fetch its files below `folder`."""
        return self._wait(self._client.download_checkpoint(job_id, checkpoint_id, folder, deadline_s=deadline_s))

    def delete_checkpoint(self, job_id: str, checkpoint_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> None:
        """Remove a checkpoint for good."""
        self._wait(self._client.delete_checkpoint(job_id, checkpoint_id, deadline_s=deadline_s))

    def tail_logs(
        self,
        job_id: str,
        sub_job_id: str | None = None,
        *,
        cursor: str | None = None,
        max_lines: int | None = None,
        deadline_s: float = CONTROL_DEADLINE_S,
    ) -> LogPage:
        """One page of a sub-job's log."""
        return self._wait(
            self._client.tail_logs(job_id, sub_job_id, cursor=cursor, max_lines=max_lines, deadline_s=deadline_s)
        )

    def stream_logs(
        self,
        job_id: str,
        sub_job_id: str | None = None,
        *,
        cursor: str | None = None,
        follow: bool = True,
        deadline_s: float = FOREVER_S,
    ) -> Iterator[dict[str, Any]]:
        """The entries of a sub-job's log, one by one."""
        return self._iterate(
            self._client.stream_logs(job_id, sub_job_id, cursor=cursor, follow=follow, deadline_s=deadline_s)
        )

    def cancel_request(self, job_id: str, request_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> dict[str, Any]:
        """Ask for the end of a request."""
        return self._wait(self._client.cancel_request(job_id, request_id, deadline_s=deadline_s))

    def weight_sync(
        self,
        job_id: str,
        source_sub_job_id: str,
        target_sub_job_ids: Sequence[str],
        deadline_s: float = DATA_DEADLINE_S,
        *,
        weight_format: Literal["lora", "hf", "vllm"] | None = None,
    ) -> WeightSync:
        """Give the trainer's weights to the samplers."""
        return self._wait(
            self._client.weight_sync(
                job_id, source_sub_job_id, target_sub_job_ids, deadline_s, weight_format=weight_format
            )
        )

    def reset_prefix_cache(self, job_id: str, *, deadline_s: float = 120.0) -> None:
        """Make the job's samplers forget all prefixes."""
        self._wait(self._client.reset_prefix_cache(job_id, deadline_s=deadline_s))

    def _iterate[R](self, items: AsyncGenerator[R]) -> Iterator[R]:
        async def following() -> tuple[R, ...]:
            with contextlib.suppress(StopAsyncIteration):
                return (await anext(items),)
            return ()

        try:
            while found := self._wait(following()):
                yield from found
        finally:
            self._wait(items.aclose())

    def _wait[R](self, call: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
