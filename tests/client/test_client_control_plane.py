"""Jobs, the sync face, and what importing the client brings along."""

import subprocess
import sys

import pytest
from builders.training_server import FAST_RETRY

from drydock.client import Refused, TrainingClient
from drydock.client.sync import SyncTrainingClient
from drydock.errors import DeadlineExceeded, JobFailed, ServiceError, ServiceUnavailable, UserError
from drydock.wire import JobCreate, JobStatus, SamplingParams

BODY = {
    "sub_job_configs": [{"job_type": "training", "model_name": "m", "training_config": {"x": None}}],
    "comment": "mine",
}


async def test_create_sends_what_was_set_and_nothing_else(server, client):
    job = await client.create_job(JobCreate.model_validate(BODY))
    assert (job.job_id, job.status) == ("made", JobStatus.PENDING)
    assert server.paths() == ["POST "]
    assert server.seen[0].body.decode() == JobCreate.model_validate(BODY).model_dump_json(exclude_unset=True)
    assert '"x":null' in server.seen[0].body.decode()


async def test_create_is_not_sent_twice_to_a_server_without_idempotency(server):
    server.faults = [(500, {"message": "who knows"})]
    async with TrainingClient(server.url, retry=FAST_RETRY, hosted=True) as client:
        with pytest.raises(ServiceUnavailable, match=r"create job: HTTP 500: who knows.*may have taken effect"):
            await client.create_job(JobCreate.model_validate(BODY))
    assert len(server.seen) == 1


async def test_create_is_sent_again_with_one_idempotency_key(server, client):
    server.faults = [(502, {}), (503, {})]
    await client.create_job(JobCreate.model_validate(BODY))
    await client.create_job(JobCreate.model_validate(BODY), idempotency_key="mine")
    keys = [seen.headers["idempotency-key"] for seen in server.seen]
    assert len(set(keys[:3])) == 1
    assert keys[3] == "mine"


async def test_list_filters_even_where_the_server_does_not(server, client):
    server.jobs = {
        "a": [{"job_id": "a", "status": "running", "comment": "mine"}],
        "b": [{"job_id": "b", "status": "JOB_STATE_RUNNING", "comment": "other"}],
        "c": [{"job_id": "c", "status": "failed", "comment": "mine"}],
    }
    assert [job.job_id for job in await client.list_jobs()] == ["a", "b", "c"]
    assert [job.job_id for job in await client.list_jobs(status="running", comment="mine")] == ["a"]
    assert server.seen[-1].query == {"status": "running", "comment": "mine"}


async def test_waiting_for_a_job_ends_with_running_failure_or_deadline(server, client):
    server.jobs = {
        "up": [{"job_id": "up", "status": status} for status in ("pending", "placing", "initializing", "running")],
        "down": [{"job_id": "down", "status": "failed", "reason": "model m not found"}],
        "gone": [{"job_id": "gone", "status": "terminated"}],
        "stuck": [{"job_id": "stuck", "status": "placing"}],
    }
    assert (await client.wait_for_job("up", 10)).status is JobStatus.RUNNING
    with pytest.raises(JobFailed, match=r"job down is failed.*model m not found"):
        await client.wait_for_job("down", 10)
    with pytest.raises(JobFailed, match="job gone is terminated"):
        await client.wait_for_job("gone", 10)
    with pytest.raises(DeadlineExceeded, match=r"wait for job stuck .*still placing"):
        await client.wait_for_job("stuck", 0.3)


async def test_cancelling_twice_is_no_error(server, client):
    await client.cancel_job("j")
    server.cancel_answer = (409, {"message": "it is over"})
    await client.cancel_job("j")
    server.cancel_answer = (404, {"message": "no such job"})
    with pytest.raises(Refused, match="cancel job j: HTTP 404: no such job"):
        await client.cancel_job("j")
    assert server.paths() == ["POST /j:cancel"] * 3


async def test_an_unknown_job_fails_at_once(server, client):
    with pytest.raises(Refused, match="get job nope: HTTP 404"):
        await client.get_job("nope")
    assert len(server.seen) == 1


async def test_capacity(server, client):
    capacity = await client.capacity("H200")
    assert (capacity.has_reservation, capacity.available_gpus, capacity.in_use_gpus) == (True, 3, 0)
    assert server.seen[0].query == {"hardware": "H200"}


@pytest.mark.parametrize("body", ["<html>", [1], {"no": "job"}], ids=["html", "list", "no job"])
async def test_answers_that_are_no_job_are_errors(server, client, body):
    server.faults = [(200, body)]
    with pytest.raises(ServiceError, match="get job j: "):
        await client.get_job("j")


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(UserError, match="base_url"):
        TrainingClient(url)


async def test_the_token_is_in_no_repr():
    for client in (
        TrainingClient("http://127.0.0.1:1", token="secret-token"),
        TrainingClient.from_pat("host:8443", "secret-token", verify_ssl=False),
        SyncTrainingClient.from_pat("host", "secret-token"),
    ):
        assert "secret" not in repr(client)
        assert "secret" not in repr(vars(client))
    assert repr(TrainingClient.from_pat("https://host/", "pat")) == "TrainingClient(https://host)"


def test_the_sync_face_makes_the_same_calls(server):
    server.held = True
    server.jobs = {"j": [{"job_id": "j", "status": "running"}]}
    server.results = {
        "generate": {"results": [{"text": "x", "token_ids": [1], "logprobs": [-1.0], "finish_reason": "stop"}]},
        "forward-backward": {"avg_loss": 0.5},
        "step": {"global_steps": 1},
        "save": {"checkpoint_id": "cp_1"},
        "weight-sync": {"policy_version": 1, "fingerprint": "f"},
    }
    with SyncTrainingClient(server.url, retry=FAST_RETRY) as client:
        assert client.create_job(JobCreate.model_validate(BODY)).job_id == "made"
        assert client.wait_for_job("j", 5).job_id == client.get_job("j").job_id == "j"
        assert [job.job_id for job in client.list_jobs(status="running")] == ["j"]
        assert client.capacity().available_gpus == 3
        assert client.generate("j", [[1]], SamplingParams(logprobs=0), deadline_s=5)[0].logprobs == [-1.0]
        assert client.forward_backward("j", {"kwargs": {"input_ids": [[1]]}}, 5).avg_loss == 0.5
        assert client.step("j", 1e-3, 5).global_steps == 1
        assert client.save("j", deadline_s=5).checkpoint_id == "cp_1"
        assert client.weight_sync("j", "j:training:0", ["j:sampling:0"], 5).policy_version == 1
        client.reset_prefix_cache("j")
        client.cancel_job("j")
        with pytest.raises(Refused, match="404"):
            client.get_job("nope")


def test_client_and_wire_import_no_torch():
    heavy = ("torch", "transformers", "safetensors")
    code = f"import sys, drydock.client.sync, drydock.wire; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
