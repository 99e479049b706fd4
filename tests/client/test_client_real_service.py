"""The client against the real service over TLS, in both connection modes: base URL and token, host and PAT."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest
import pytest_asyncio
from builders.certificate import Certificate, make_certificate
from builders.service_api import sampling_config, training_config
from builders.tiny_model import build_tiny_model

from drydock.client import Refused, TrainingClient
from drydock.client.sync import SyncTrainingClient
from drydock.errors import DeadlineExceeded, JobFailed, ServiceError
from drydock.service.embedded import EmbeddedService
from drydock.wire import JobCreate, JobStatus, SamplingParams

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = "ours"
PROMPT = list(range(20, 40))


@dataclass(frozen=True)
class Running:
    """A service over TLS whose job `JOB` has one trainer and one sampler."""

    service: EmbeddedService
    certificate: Certificate
    model: str

    @property
    def checked(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate.cert)

    def client(self, mode: str = "base_url") -> TrainingClient:
        if mode == "base_url":
            return TrainingClient(self.service.base_url, token=self.service.token, verify_ssl=self.checked)
        host = self.service.base_url.removeprefix("https://")
        return TrainingClient.from_pat(host, self.service.token, database="DB", verify_ssl=self.checked)

    def body(self, job_id: str | None = None, **fields: str) -> JobCreate:
        subs = [training_config(self.model), sampling_config(self.model)]
        return JobCreate.model_validate(
            {"sub_job_configs": subs, **({"job_id": job_id} if job_id else {}), "comment": "client test", **fields}
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("client")
    certificate = make_certificate(folder / "tls")
    model = str(build_tiny_model(folder / "model"))
    async with EmbeddedService(
        folder / "state", tls_cert=certificate.cert, tls_key=certificate.key, pool={"CPU": 4}
    ) as service:
        found = Running(service, certificate, model)
        async with found.client() as client:
            created = await client.create_job(found.body(JOB))
            assert created.job_id == JOB
            assert (await client.wait_for_job(JOB, 120)).status is JobStatus.RUNNING
        yield found


@pytest_asyncio.fixture(params=["base_url", "pat"], loop_scope="module")
async def client(running: Running, request: pytest.FixtureRequest) -> AsyncIterator[TrainingClient]:
    async with running.client(request.param) as connected:
        yield connected


async def test_training_sync_and_sampling_agree(client: TrainingClient):
    params = SamplingParams(max_tokens=8, logprobs=0, ignore_eos=True, seed=1)
    first, second = await client.generate(JOB, [PROMPT, PROMPT[:5]], params, routing_key="r", deadline_s=60)
    assert len(first.token_ids) == len(first.logprobs) == len(second.token_ids) == 8
    assert first.finish_reason == "length"
    row = PROMPT + first.token_ids
    batch = grpo_batch(row, first.logprobs)
    result = await client.forward_backward(JOB, batch, deadline_s=60)
    logprobs = result.post_process_outputs["logprobs"]
    assert logprobs.shape == (1, len(row))
    np.testing.assert_allclose(logprobs[0, len(PROMPT) - 1 : -1], first.logprobs, atol=1e-4)
    step = await client.step(JOB, 1e-2, deadline_s=60)
    sync = await client.weight_sync(JOB, f"{JOB}:training:0", [f"{JOB}:sampling:0"], deadline_s=60)
    assert sync.policy_version == step.global_steps
    (after,) = await client.generate(JOB, [PROMPT], params, deadline_s=60)
    assert after.policy_version == step.global_steps
    assert after.logprobs != first.logprobs


async def test_forward_gives_the_logprobs_that_forward_backward_gives(client: TrainingClient):
    rows = np.random.default_rng(0).integers(5, 200, (4, 12))
    batch = {"kwargs": {"input_ids": rows, "attention_mask": np.ones_like(rows)}}
    logprobs = (await client.forward(JOB, batch, deadline_s=60)).logprobs
    assert logprobs.shape == (4, 12)
    mask = np.ones(rows.shape, np.float32)
    mask[:, -1] = 0.0
    result = await client.forward_backward(
        JOB,
        {
            **batch,
            "context": {"loss_mask": mask},
            "processing": {"loss_fn": "causal_cross_entropy", "config": {}, "post": ["compute_logprobs"]},
        },
        deadline_s=60,
    )
    await client.step(JOB, 0.0, deadline_s=60)
    np.testing.assert_allclose(logprobs[:, :-1], result.post_process_outputs["logprobs"][:, :-1], atol=1e-5)


async def test_a_forward_too_large_for_one_body_is_cut_by_rows(running: Running):
    rows = np.random.default_rng(1).integers(5, 200, (9, 64))
    batch = {"kwargs": {"input_ids": rows, "attention_mask": np.ones_like(rows)}}
    async with running.client() as client:
        whole = await client.forward(JOB, batch, entropy=True, deadline_s=60)
    async with TrainingClient(
        running.service.base_url,
        token=running.service.token,
        verify_ssl=running.checked,
        max_body_bytes=4000,
    ) as client:
        parts = await client.forward(JOB, batch, entropy=True, deadline_s=60)
    np.testing.assert_allclose(parts.logprobs, whole.logprobs, atol=1e-5)
    assert parts.entropy is not None
    assert whole.entropy is not None
    np.testing.assert_allclose(parts.entropy, whole.entropy, atol=1e-5)


async def test_prompts_are_handed_out_as_they_finish(client: TrainingClient):
    seen: dict[int, int] = {}
    params = SamplingParams(max_tokens=40, ignore_eos=True, logprobs=0)
    stream = client.generate_stream(JOB, [PROMPT[:length] for length in (2, 18, 4)], params, deadline_s=60)
    async for index, generation in stream:
        assert index not in seen
        seen[index] = len(generation.token_ids)
        assert len(generation.logprobs) == 40
    assert seen == {0: 40, 1: 40, 2: 40}


async def test_a_stream_that_is_left_cancels_the_rest(running: Running):
    params = SamplingParams(max_tokens=1800, ignore_eos=True)
    async with running.client() as client:
        stream = client.generate_stream(JOB, [PROMPT[:2]] * 3, params, deadline_s=60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(stream)
        await stream.aclose()
        short = await client.generate(JOB, [PROMPT], SamplingParams(max_tokens=1), deadline_s=10)
        assert len(short[0].token_ids) == 1


async def test_a_batch_is_accumulated_once_for_its_key(running: Running):
    """Gradients that were accumulated twice would double the norm."""
    batch = grpo_batch(PROMPT, [-1.0] * 10)
    norms = []
    async with running.client() as client:
        for times in (1, 3):
            for _ in range(times):
                await client.forward_backward(JOB, batch, 60, idempotency_key=f"batch {times}")
            step = await client.step(JOB, 0.0, 60, idempotency_key=f"step {times}")
            again = await client.step(JOB, 0.0, 60, idempotency_key=f"step {times}")
            assert again.global_steps == step.global_steps
            norms.append(step.metrics["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


async def test_checkpoints_are_saved_listed_downloaded_loaded_and_deleted(client: TrainingClient, tmp_path):
    saved = await client.save(JOB, deadline_s=60)
    listed = {found.checkpoint_id: found for found in await client.list_checkpoints(JOB)}
    assert listed[saved.checkpoint_id].checkpoint_type == "resumable"
    export = await client.export_checkpoint(JOB, saved.checkpoint_id)
    files = await client.download_checkpoint(JOB, saved.checkpoint_id, tmp_path / "out")
    assert [path.stat().st_size for path in files] == [file.size_bytes for file in export.files]
    assert any(path.suffix == ".safetensors" for path in files)
    files[0].write_bytes(b"cut")
    whole = await client.download_checkpoint(JOB, saved.checkpoint_id, tmp_path / "out")
    assert whole[0].stat().st_size == export.files[0].size_bytes
    assert not list((tmp_path / "out").rglob("*.part"))
    await client.load(JOB, saved.checkpoint_id, deadline_s=60)
    await client.save(JOB, checkpoint_type="weights-only", deadline_s=60)
    await client.delete_checkpoint(JOB, saved.checkpoint_id)
    with pytest.raises(Refused, match="404"):
        await client.delete_checkpoint(JOB, saved.checkpoint_id)
    with pytest.raises(ServiceError, match=saved.checkpoint_id):
        await client.load(JOB, saved.checkpoint_id, deadline_s=60)


async def test_logs_are_read_in_pages_and_followed(client: TrainingClient):
    name = f"{JOB}:training:0"
    page = await client.tail_logs(JOB, name, max_lines=1)
    assert len(page.entries) == 1
    rest = await client.tail_logs(JOB, name, cursor=page.next_cursor)
    read = [entry async for entry in client.stream_logs(JOB, name, follow=False)]
    assert read[: 1 + len(rest.entries)] == page.entries + rest.entries
    following = client.stream_logs(JOB, name, deadline_s=30)
    assert await anext(following) == page.entries[0]
    await following.aclose()
    with pytest.raises(DeadlineExceeded, match="stream-logs on job ours"):
        await _all(client.stream_logs(JOB, name, cursor=rest.next_cursor, deadline_s=0.5))


async def test_the_account_is_told(client: TrainingClient):
    assert (await client.whoami()).role == "admin"
    assert (await client.capacity()).in_use_gpus == 2
    assert (await client.experiment_run(JOB)).experiment_run_name == JOB
    assert await client.usage("job", job_id=JOB)
    assert await client.job_usage(JOB)


async def test_creating_with_the_same_key_gives_the_same_job_and_a_log_ends_with_it(running: Running):
    async with running.client() as client:
        body = running.body(comment="twice")
        first = await client.create_job(body, idempotency_key="create 1")
        again = await client.create_job(body, idempotency_key="create 1")
        assert again.job_id == first.job_id
        with pytest.raises(Refused, match="another body"):
            await client.create_job(running.body(comment="other"), idempotency_key="create 1")
        log = client.stream_logs(first.job_id, f"{first.job_id}:sampling:0", deadline_s=60)
        await client.wait_for_job(first.job_id, 60)
        entries = asyncio.ensure_future(_all(log))
        await client.cancel_job(first.job_id)
        assert await asyncio.wait_for(entries, 20)
        with pytest.raises(JobFailed, match="cancelled"):
            await client.wait_for_job(first.job_id, 10)
        found = await client.list_jobs(comment="twice")
        assert [(job.job_id, job.status) for job in found] == [(first.job_id, JobStatus.CANCELLED)]


async def test_refusals_come_at_once(running: Running):
    async with running.client() as client:
        async with asyncio.timeout(5):
            with pytest.raises(Refused, match="get job nope: HTTP 404"):
                await client.get_job("nope")
            with pytest.raises(Refused, match="wait for job nope: HTTP 404"):
                await client.wait_for_job("nope", 60)
            with pytest.raises(Refused, match="404"):
                await client.cancel_request(JOB, "req_none")
            with pytest.raises(Refused, match=f"generate on job {JOB}: "):
                await client.generate(JOB, [[10**6]], SamplingParams(), deadline_s=60)
    async with TrainingClient(running.service.base_url, token="wrong", verify_ssl=running.checked) as stranger:
        with pytest.raises(Refused, match=r"list jobs: HTTP 401: .*DRYDOCK_SERVICE_TOKEN"):
            await stranger.list_jobs()
    async with TrainingClient(running.service.base_url, token=running.service.token) as unsure:
        with pytest.raises(ServiceError, match="certificate"):
            await unsure.list_jobs()


async def test_the_sync_face_streams_too(running: Running):
    await asyncio.to_thread(use_sync_face, running)


def use_sync_face(running: Running) -> None:
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    with SyncTrainingClient(
        running.service.base_url, token=running.service.token, verify_ssl=running.checked
    ) as client:
        found = dict(client.generate_stream(JOB, [PROMPT, PROMPT[:3]], params, deadline_s=60))
        assert {index: len(generation.token_ids) for index, generation in found.items()} == {0: 3, 1: 3}
        lines = client.stream_logs(JOB, f"{JOB}:training:0", deadline_s=30)
        assert next(lines)
        lines.close()
        assert client.whoami().user
        assert client.list_checkpoints(JOB) is not None


async def _all(items: AsyncIterator) -> list:
    return [item async for item in items]


def grpo_batch(row: list[int], old_logprobs: list[float]) -> dict:
    """One row whose last tokens were sampled with the given log-probs."""
    width, prompt = len(row), len(row) - len(old_logprobs)
    old, mask = np.zeros((1, width), np.float32), np.zeros((1, width), np.int64)
    old[0, prompt - 1 : width - 1] = old_logprobs
    mask[0, prompt - 1 : width - 1] = 1
    return {
        "kwargs": {"input_ids": [row], "attention_mask": [[1] * width]},
        "context": {"advantages": mask * 1.0, "loss_mask": mask, "old_log_probs_shifted": old},
        "processing": {
            "loss_fn": "grpo",
            "config": {"importance_sampling_level": "sequence"},
            "post": ["compute_logprobs"],
        },
    }
