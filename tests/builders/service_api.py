"""The training API over plain httpx: bodies as a client would send them, answers as they came."""

import asyncio
import time
import uuid
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import numpy as np

from drydock.service.embedded import EmbeddedService
from drydock.wire.chunks import split_request
from drydock.wire.frame import encode_frame

PREFIX = "/api/v2/databases/any/schemas/PUBLIC/cortex-training"
HELD = {"Prefer": "wait=60"}
STARTING = ("pending", "placing", "initializing")


class Api:
    """One service's API. `call` returns the answer whatever its status; the other methods demand success."""

    def __init__(self, base_url: str, token: str | None, *, prefix: str = PREFIX) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._prefix = prefix
        self.http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=60)

    @classmethod
    def of(cls, service: EmbeddedService) -> "Api":
        return cls(service.base_url, service.token.get_secret_value())

    async def __aenter__(self) -> "Api":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def call(self, method: str, path: str, **fields: Any) -> httpx.Response:
        return await self.http.request(method, self._prefix + path, **fields)

    def stream(self, method: str, path: str, **fields: Any) -> AbstractAsyncContextManager[httpx.Response]:
        """The answer before its body has come."""
        return self.http.stream(method, self._prefix + path, **fields)

    async def get(self, path: str, **fields: Any) -> dict[str, Any]:
        answer = await self.call("GET", path, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, **fields: Any) -> dict[str, Any]:
        answer = await self.call("POST", path, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def result(self, path: str, **fields: Any) -> dict[str, Any]:
        """The result of a held POST that must complete."""
        state = await self.post(path, **{"headers": HELD, **fields})
        assert state["status"] == "completed", state
        return state["result"]

    async def wait_for_job(self, job_id: str, wanted: str = "running", *, limit_s: float = 60) -> dict[str, Any]:
        ends = time.monotonic() + limit_s
        while True:
            job = await self.get(f"/{job_id}")
            if job["status"] == wanted:
                return job
            assert job["status"] in (*STARTING, "running"), job
            assert time.monotonic() < ends, job
            await asyncio.sleep(0.05)

    async def poll(self, job_id: str, request_id: str, **fields: Any) -> dict[str, Any]:
        return await self.get(f"/{job_id}/requests/{request_id}", headers=HELD, **fields)

    async def operation(self, job_id: str, kind: str, **fields: Any) -> dict[str, Any]:
        return await self.post(f"/{job_id}/operation", json={"operation_type": kind, **fields})


def training_config(model: str, **config: Any) -> dict[str, Any]:
    """A training sub-job on one thread."""
    block = {"optimizer": {"name": "AdamW", "lr": 3e-3}, "max_seq_len": 256, "n_gpus": 1, "train_batch_size": 4}
    return {"job_type": "training", "model_name": model, "training_config": {**block, "torch_threads": 1, **config}}


def sampling_config(model: str, **config: Any) -> dict[str, Any]:
    """A sampling sub-job on one thread."""
    block = {"max_seq_len": 2048, "n_gpus": 1, "torch_threads": 1}
    return {"job_type": "sampling", "model_name": model, "inference_config": {**block, **config}}


def log_probability_config(model: str, **config: Any) -> dict[str, Any]:
    """A log-probability sub-job on one thread."""
    block = {"max_seq_len": 256, "n_gpus": 1, "torch_threads": 1}
    return {"job_type": "log_probability", "model_name": model, "inference_config": {**block, **config}}


def sft_batch(ids: np.ndarray, *, post: list[str] | None = None) -> dict[str, Any]:
    """Next-token cross-entropy over whole rows [batch, tokens]."""
    mask = np.ones(ids.shape, np.float32)
    mask[:, -1] = 0.0
    processing: dict[str, Any] = {"loss_fn": "causal_cross_entropy", "config": {}, "post": post or []}
    return {
        "args": (),
        "kwargs": {"input_ids": ids, "attention_mask": np.ones_like(ids)},
        "context": {"loss_mask": mask},
        "processing": processing,
    }


def chunks_of(
    batch: dict[str, Any], *, group_id: str | None = None, tensors: bool = False, **split: Any
) -> list[bytes]:
    """A batch's POST bodies; `tensors` asks for a DSSST1 result."""
    metadata = {"response_options": {"format": "dssst1", "delivery": "chunked"}} if tensors else None
    frame = encode_frame(batch, metadata)
    return split_request(frame, operation="fwd-bwd", group_id=group_id or str(uuid.uuid4()), **split)
