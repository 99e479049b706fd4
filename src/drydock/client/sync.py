"""Sync face of the client, for scripts and notebooks: the same calls, blocking.

One thread runs an event loop that owns the connections; each method hands its coroutine over and waits. An interrupt
while waiting cancels the call. Code that runs many calls at once wants the async client. Each method is made from the
async one, so parameters, defaults and documentation are the same ones.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Self

from pydantic import SecretStr

from drydock.client.connection import hosted_url
from drydock.client.training_client import TrainingClient


def _blocking[**P, R](
    method: Callable[Concatenate[TrainingClient, P], Coroutine[Any, Any, R]],
) -> "Callable[Concatenate[SyncTrainingClient, P], R]":
    """The method that waits for the async one's result."""

    @wraps(method)
    def call(self: "SyncTrainingClient", *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(method(self._client, *args, **kwargs))

    return call


def _iterating[**P, R](
    method: Callable[Concatenate[TrainingClient, P], AsyncGenerator[R]],
) -> "Callable[Concatenate[SyncTrainingClient, P], Iterator[R]]":
    """The method whose iterator waits for each item of the async one's."""

    @wraps(method)
    def call(self: "SyncTrainingClient", *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return self._iterate(method(self._client, *args, **kwargs))

    return call


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

    create_job = _blocking(TrainingClient.create_job)
    get_job = _blocking(TrainingClient.get_job)
    list_jobs = _blocking(TrainingClient.list_jobs)
    cancel_job = _blocking(TrainingClient.cancel_job)
    wait_for_job = _blocking(TrainingClient.wait_for_job)
    experiment_run = _blocking(TrainingClient.experiment_run)
    capacity = _blocking(TrainingClient.capacity)
    usage = _blocking(TrainingClient.usage)
    job_usage = _blocking(TrainingClient.job_usage)
    whoami = _blocking(TrainingClient.whoami)

    generate = _blocking(TrainingClient.generate)
    generate_stream = _iterating(TrainingClient.generate_stream)
    reset_prefix_cache = _blocking(TrainingClient.reset_prefix_cache)
    load_adapter = _blocking(TrainingClient.load_adapter)
    drop_adapter = _blocking(TrainingClient.drop_adapter)
    list_adapters = _blocking(TrainingClient.list_adapters)
    forward_backward = _blocking(TrainingClient.forward_backward)
    forward = _blocking(TrainingClient.forward)
    step = _blocking(TrainingClient.step)
    weight_sync = _blocking(TrainingClient.weight_sync)

    save = _blocking(TrainingClient.save)
    load = _blocking(TrainingClient.load)
    list_checkpoints = _blocking(TrainingClient.list_checkpoints)
    export_checkpoint = _blocking(TrainingClient.export_checkpoint)
    download_checkpoint = _blocking(TrainingClient.download_checkpoint)
    delete_checkpoint = _blocking(TrainingClient.delete_checkpoint)

    tail_logs = _blocking(TrainingClient.tail_logs)
    stream_logs = _iterating(TrainingClient.stream_logs)
    cancel_request = _blocking(TrainingClient.cancel_request)

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
