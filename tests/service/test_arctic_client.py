"""The published `arctic-platform` package's Cortex transport, unmodified, against this service."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from builders.service_api import Api

from drydock.service.embedded import EmbeddedService

pytest.importorskip("arctic_platform.client.transports.cortex")
pytestmark = pytest.mark.asyncio(loop_scope="session")


def settings_of(model: str, base_url: str | None = None, **more: Any) -> dict[str, Any]:
    """Fields of a client's configuration; the address comes from ARCTIC_CORTEX_BASE_URL unless given."""
    from arctic_platform.client import CortexConfig, TrainingConfig

    engine = {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.0}},
        "train_batch_size": 4,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}},
    }
    return {
        "model_name": model,
        "max_seq_len": 256,
        "training": TrainingConfig(ds_config=engine, checkpoint_path="/unused/on/this/wire"),
        "backend": CortexConfig(**({"base_url": base_url} if base_url else {})),
        **more,
    }


def as_tensors(block: dict[str, np.ndarray]) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(array) for name, array in block.items()}


@pytest.fixture(scope="module")
def address(service: EmbeddedService) -> str:
    return service.base_url.replace("http://", f"http://arctic:{service.token.get_secret_value()}@")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(address: str, model: str, api: Api) -> AsyncIterator[Any]:
    """An RL client with a job of its own; shutting it down cancels the job."""

    def start() -> Any:
        from arctic_platform.client import ArcticClientConfig, ArcticRLClient

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ARCTIC_CORTEX_BASE_URL", address)
            return ArcticRLClient(ArcticClientConfig(**settings_of(model, training_gpus=1, sampling_gpus=1, seed=3)))

    started = await asyncio.to_thread(start)
    job_id = started.transport.job_id
    yield started
    await asyncio.to_thread(started.shutdown)
    assert (await api.get(f"/{job_id}"))["status"] == "cancelled"


async def test_the_rl_client_samples_trains_saves_and_syncs(client: Any, api: Api):
    await asyncio.to_thread(_reinforce, client)
    [kept] = (await api.get(f"/{client.transport.job_id}/checkpoints"))["checkpoints"]
    assert kept["checkpoint_id"] == "best"


def _reinforce(client: Any) -> None:
    results = client.generate([[5, 6, 7], "text"], {"max_tokens": 4, "ignore_eos": True})
    assert [len(result["token_ids"]) for result in results] == [4, 4]
    assert isinstance(results[0]["token_ids"], list)
    ids = np.random.default_rng(0).integers(5, 200, (4, 12))
    mask = np.ones(ids.shape, np.float32)
    mask[:, -1] = 0.0
    batch = {
        "args": (),
        "kwargs": as_tensors({"input_ids": ids, "attention_mask": np.ones_like(ids)}),
        "context": as_tensors({"loss_mask": mask, "advantages": np.ones(ids.shape, np.float32)}),
    }
    processing = {"loss_fn": "grpo", "config": {"eps_clip": 0.2}, "post": ["compute_logprobs"]}
    trained = client.fwd_bwd(batch, processing=processing)
    assert trained["batch"]["logprobs"].shape == (4, 12)
    assert "avg_loss" in trained
    step = client.step(learning_rate=1e-2)
    assert step["global_steps"] == 1
    assert step["metrics"]["grad_norm"] > 0
    assert client.save_checkpoint("best", "weights-only")["checkpoint_id"] == "best"
    assert client.sync_weights(weight_format="vllm")["policy_version"] == 1
    assert client.reset_prefix_cache()["reset"] is True
    assert client.generate([[5, 6]], {"max_tokens": 1})[0]["policy_version"] == 1


async def test_the_sft_client_trains_on_labels_aligned_with_the_ids(client: Any, address: str, model: str):
    steps = await asyncio.to_thread(_fine_tune, address, model, client.jobs.training)
    assert steps[-1]["metrics"]["loss"] < steps[0]["metrics"]["loss"]
    assert steps[0]["metrics"]["grad_norm"] > 0


def _fine_tune(address: str, model: str, training_job_id: str) -> list[dict[str, Any]]:
    from arctic_platform.client import ArcticSFTClient, ArcticSFTClientConfig

    settings = settings_of(model, address, training_gpus=1, training_job_id=training_job_id)
    client = ArcticSFTClient(ArcticSFTClientConfig(**settings))
    ids = np.random.default_rng(0).integers(5, 200, (2, 12))
    labels = ids.copy()
    labels[:, :4] = -100
    batch = {"kwargs": as_tensors({"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels})}
    return [client.train_step(batch) for _ in range(3)]


async def test_the_async_client_joins_a_running_job(client: Any, address: str, model: str):
    from arctic_platform.client import ArcticClientConfig, AsyncArcticRLClient

    settings = settings_of(model, address, sampling_gpus=1, sampling_job_id=client.jobs.sampling)
    joined = await asyncio.to_thread(AsyncArcticRLClient, ArcticClientConfig(**settings))
    try:
        results = await asyncio.gather(*(joined.generate([[5, 6]], {"max_tokens": 2}) for _ in range(3)))
    finally:
        await joined.transport.aclose()
    assert [len(batch) for batch in results] == [1, 1, 1]
