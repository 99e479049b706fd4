"""The published `cortex-training` package, unmodified, against this service."""

import asyncio
import contextlib
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from builders.service_api import Api, sampling_config, sft_batch

from drydock.service.embedded import EmbeddedService

pytest.importorskip("cortex_training")
pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB = "sdk"
TRAINER, SAMPLER = f"{JOB}:training:0", f"{JOB}:sampling:0"


@pytest.fixture(scope="module")
def client(service: EmbeddedService) -> Any:
    from cortex_training import CortexTrainingClient

    url = service.base_url.replace("http://", f"http://drydock:{service.token.get_secret_value()}@")
    return CortexTrainingClient(base_url=url, database="", schema="PUBLIC", poll_interval=0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sdk_job(client: Any, api: Api, model: str) -> AsyncIterator[str]:
    """A running job, made with the package's own types."""

    def create() -> None:
        from cortex_training import SubJobConfig

        trainer = SubJobConfig.training_job(
            model,
            optimizer={"name": "AdamW", "lr": 1e-2},
            max_seq_len=256,
            train_batch_size=4,
            n_gpus=1,
            extra_training={"torch_threads": 1},
        )
        sampler = SubJobConfig.sampling_job(model, max_seq_len=512, n_gpus=1, extra_sampling={"torch_threads": 1})
        assert client.create_job([trainer, sampler], job_id=JOB, experiment_name="exp") == JOB
        assert client.wait_for_job(JOB)["status"] == "running"

    await asyncio.to_thread(create)
    yield JOB
    await api.post(f"/{JOB}:cancel")


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch of arrays with torch tensors in their place, as the package's writer wants them."""
    import torch

    turned = {
        block: {name: torch.from_numpy(array) for name, array in batch[block].items()}
        for block in ("kwargs", "context")
    }
    return {**batch, **turned}


async def in_thread[T](call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    return await asyncio.to_thread(call, *arguments, **named)


async def test_a_job_of_typed_sub_jobs(client: Any, sdk_job: str):
    job = await in_thread(client.get_job, sdk_job)
    assert {sub["sub_job_id"]: sub["status"] for sub in job["sub_jobs"]} == {TRAINER: "running", SAMPLER: "running"}
    assert sdk_job in [job["job_id"] for job in await in_thread(client.list_jobs, status="running")]
    assert (await in_thread(client.get_capacity))["max_total_gpus"] > 0
    run = await in_thread(client.get_experiment_run, sdk_job)
    assert run == {"experiment_name": "exp", "experiment_run_name": sdk_job}


async def test_generate_of_ids_and_text(client: Any, sdk_job: str):
    def work() -> list[dict[str, Any]]:
        params = {"max_tokens": 5, "temperature": 0.0, "logprobs": 0, "ignore_eos": True}
        request = client.generate(sdk_job, [[5, 6, 7], "a prompt"], params, routing_key="r", strict=False)
        return client.poll_request(sdk_job, request)["results"]

    results = await in_thread(work)
    assert [len(result["token_ids"]) for result in results] == [5, 5]
    assert len(results[0]["logprobs"]) == 5


@pytest.mark.parametrize("with_cursor", [False, True])
async def test_a_stream_tells_every_result_once_and_a_page_can_be_asked_for_again(
    client: Any, sdk_job: str, with_cursor: bool
):
    def work() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        prompts = [[5, 6, 7], "text", [8, 9]] * 8
        params = [{"max_tokens": 1 + index % 5, "ignore_eos": True} for index in range(len(prompts))]
        started = client.generate_stream(sdk_job, prompts, params)
        events: list[dict[str, Any]] = []
        cursor = None
        while not events or events[-1]["type"] != "done":
            page = client.get_request_status(sdk_job, started["request_id"], cursor=cursor, max_events=5)
            if with_cursor and cursor:
                again = client.get_request_status(sdk_job, started["request_id"], cursor=cursor, max_events=5)
                assert again["events"][: len(page["events"])] == page["events"]
            events += page["events"]
            cursor = page.get("next_cursor") if with_cursor else None
            time.sleep(0.01)
        return started, events

    started, events = await in_thread(work)
    assert started["count"] == 24
    results = {event["index"]: event["result"] for event in events if event["type"] == "result"}
    assert sorted(results) == list(range(24))
    assert len(events) == 25
    assert [len(results[index]["token_ids"]) for index in range(24)] == [1 + index % 5 for index in range(24)]
    assert events[-1] == {"type": "done", "completed": 24, "failed": 0}
    result = await in_thread(client.poll_request, sdk_job, started["request_id"])
    assert result == {"completed": 24, "failed": 0}


async def test_training_in_one_chunk_and_in_many(client: Any, sdk_job: str):
    from cortex_training import wire

    options = {"response_options": {"format": "dssst1", "delivery": "chunked"}}
    ids = np.random.default_rng(0).integers(5, 200, (2, 12))

    def train(batch: dict[str, Any]) -> tuple[dict[str, Any], int]:
        frame = wire.dumps(tensors(batch), metadata=options)
        return client.poll_request(sdk_job, client.forward_backward(sdk_job, frame)), len(frame)

    one, _ = await in_thread(train, sft_batch(ids, post=["compute_logprobs"]))
    assert one["post_process_outputs"]["logprobs"].shape == (2, 12)
    width = 1_800_000
    padded = {name: np.zeros((2, width), array.dtype) for name, array in sft_batch(ids)["kwargs"].items()}
    mask = np.zeros((2, width), np.float32)
    for name, array in sft_batch(ids)["kwargs"].items():
        padded[name][:, :12] = array
    mask[:, :11] = 1.0
    many, size = await in_thread(train, {**sft_batch(ids), "kwargs": padded, "context": {"loss_mask": mask}})
    assert size > 62_914_560
    assert many["avg_loss"] == pytest.approx(one["avg_loss"], rel=1e-5)
    step = await in_thread(lambda: client.poll_request(sdk_job, client.step(sdk_job, learning_rate=0.01)))
    assert (step["global_steps"], step["last_lr"]) == (1, 0.01)
    after, _ = await in_thread(train, sft_batch(ids))
    assert after["avg_loss"] < one["avg_loss"]
    await in_thread(lambda: client.poll_request(sdk_job, client.step(sdk_job)))


async def test_forward_gives_log_probs_and_leaves_no_gradients(client: Any, sdk_job: str):
    from cortex_training import wire

    batch = sft_batch(np.random.default_rng(1).integers(5, 200, (3, 10)), post=["compute_logprobs"])

    def work() -> tuple[Any, Any, Any]:
        frame = wire.dumps(tensors(batch), metadata={"response_options": {"format": "dssst1"}})
        started = client.forward(sdk_job, frame, sub_job_type="training")
        by_frame = client.poll_request(sdk_job, started["request_id"])["post_process_outputs"]["logprobs"]
        plain = {"kwargs": {"input_ids": batch["kwargs"]["input_ids"].tolist()}}
        started = client.fwd_no_grad(sdk_job, plain)
        by_list = client.poll_request(sdk_job, started["request_id"])["post_process_outputs"]["logprobs"]
        with contextlib.suppress(RuntimeError):
            client.poll_request(sdk_job, client.step(sdk_job))
            pytest.fail("a step without gradients was taken")
        trained = client.poll_request(sdk_job, client.forward_backward(sdk_job, wire.dumps(tensors(batch))))
        client.poll_request(sdk_job, client.step(sdk_job, learning_rate=0.0))
        return by_frame, by_list, trained["post_process_outputs"]["logprobs"]

    by_frame, by_list, trained = await in_thread(work)
    assert by_frame.shape == (3, 10)
    np.testing.assert_allclose(by_list, by_frame, atol=1e-6)
    np.testing.assert_allclose(trained, by_frame, atol=1e-6)


async def test_checkpoints_are_saved_loaded_exported_and_deleted(client: Any, sdk_job: str, tmp_path: Path):
    def work() -> tuple[dict[str, Any], dict[str, Any]]:
        saved = client.poll_request(sdk_job, client.save(sdk_job, checkpoint_type="weights-only"))
        client.poll_request(sdk_job, client.save(sdk_job, checkpoint_id="kept"))
        client.poll_request(sdk_job, client.load(sdk_job, saved["checkpoint_id"], source_job_id=sdk_job))
        export = client.export_checkpoint(sdk_job, saved["checkpoint_id"])
        for file in export["files"]:
            target = tmp_path / file["filename"]
            with urllib.request.urlopen(file["url"], timeout=30) as answer:
                target.write_bytes(answer.read())
            assert target.stat().st_size == file["size_bytes"]
        listed = [entry["checkpoint_id"] for entry in client.list_checkpoints(sdk_job)]
        assert listed == [saved["checkpoint_id"], "kept"]
        assert client.delete_checkpoint(sdk_job, saved["checkpoint_id"]) is None
        assert [entry["checkpoint_id"] for entry in client.list_checkpoints(sdk_job)] == ["kept"]
        return saved, export

    saved, export = await in_thread(work)
    assert export["checkpoint_id"] == saved["checkpoint_id"]
    assert f"/checkpoints/{saved['checkpoint_id']}/" in saved["stage_path"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "COMPLETE.json"} <= {
        path.name for path in tmp_path.iterdir()
    }


async def test_weight_sync_and_the_small_operations(client: Any, sdk_job: str):
    def work() -> dict[str, Any]:
        sync = client.weight_sync(sdk_job, TRAINER, [SAMPLER], weight_format="hf")
        request_id = sync if isinstance(sync, str) else sync["request_id"]
        result = client.poll_request(sdk_job, request_id)
        assert client.reset_prefix_cache(sdk_job, sub_job_type="sampling")["reset"] is True
        acknowledged = client.cancel_request(sdk_job, request_id)
        assert (acknowledged["status"], acknowledged["cancelled"]) == ("completed", False)
        return result

    result = await in_thread(work)
    assert result["targets"][SAMPLER]["fingerprint"] == result["fingerprint"]


async def test_logs_by_page_and_as_a_stream(client: Any, sdk_job: str):
    page = await in_thread(client.tail_logs, sdk_job, sub_job_id=TRAINER, max_lines=1)
    assert len(page["entries"]) == 1
    assert page["next_cursor"]
    streamed = await in_thread(lambda: list(client.stream_logs(sdk_job, sub_job_id=TRAINER, follow=False)))
    assert any("is ready" in entry.get("msg", "") for entry in streamed)


async def test_permanent_refusals_fail_at_once(client: Any, sdk_job: str):
    import requests

    def refused(call: Callable[[], Any]) -> tuple[int, str]:
        started = time.monotonic()
        with pytest.raises(requests.HTTPError) as caught:
            call()
        assert time.monotonic() - started < 5
        return caught.value.response.status_code, caught.value.response.text

    for call, status, named in (
        (lambda: client.generate(sdk_job, [[10**6]]), 422, "vocabulary"),
        (lambda: client.load(sdk_job, "nope"), 422, "nope"),
        (lambda: client.load(sdk_job, "nope", target_sub_job_id=SAMPLER), 501, SAMPLER),
        (lambda: client.tail_events(sdk_job), 501, "zmd-events"),
        (lambda: client.bootstrap_router_replay(sdk_job, SAMPLER, TRAINER), 501, "expert routing"),
        (lambda: client.router_replay_discard(sdk_job, ["s"]), 501, "expert routing"),
        (lambda: client.create_job_from_body({"sub_job_configs": [sampling_config("/no/model")]}), 422, "/no/model"),
    ):
        found = await in_thread(refused, call)
        assert found[0] == status
        assert named in found[1]
