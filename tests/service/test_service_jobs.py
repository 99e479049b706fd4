import time
from pathlib import Path

import psutil
import pytest
from builders.service_api import Api, log_probability_config, sampling_config, training_config

from drydock.service.embedded import EmbeddedService

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_job_is_echoed_with_its_sub_jobs_comment_and_unknown_keys(api: Api, job: str, model: str):
    body = {
        "job_id": "echo",
        "comment": "free text, ünïcode",
        "experiment_name": "exp",
        "future_key": {"a": [1, 2.5]},
        "sub_job_configs": [{**training_config(model), "seed": 7, "note": "kept"}],
    }
    created = await api.post("", json=body)
    assert created["job_id"] == "echo"
    seen = await api.get("/echo")
    assert seen["comment"] == "free text, ünïcode"
    assert seen["future_key"] == {"a": [1, 2.5]}
    assert seen["created_at"].endswith("Z")
    [sub] = seen["sub_jobs"]
    assert sub["sub_job_id"] == "echo:training:0"
    assert sub["job_type"] == "training"
    assert (sub["seed"], sub["note"], sub["model_name"]) == (7, "kept", model)
    assert sub["training_config"]["optimizer"] == {"name": "AdamW", "lr": 3e-3}
    assert await api.get("/echo/experiment-run") == {"experiment_name": "exp", "experiment_run_name": "echo"}
    cancelled = await api.post("/echo:cancel")
    assert (cancelled["status"], cancelled["reason"]) == ("cancelled", "cancelled by request")
    assert (await api.post("/echo:cancel"))["status"] == "cancelled"

    assert [entry["job_id"] for entry in (await api.get("", params={"comment": body["comment"]}))["jobs"]] == ["echo"]
    running = (await api.get("", params={"status": "running"}))["jobs"]
    assert {entry["job_id"]: entry["status"] for entry in running}[job] == "running"
    assert "echo" not in {entry["job_id"] for entry in running}
    both = (await api.get("", params={"status": "RUNNING,cancelled"}))["jobs"]
    assert {"echo", job} <= {entry["job_id"] for entry in both}
    answer = await api.call("POST", "/echo/step", json={})
    assert answer.status_code == 410
    assert "cancelled" in answer.json()["message"]
    assert (await api.call("POST", "", json=body)).status_code == 409


async def test_both_sub_jobs_of_the_shared_job_run(api: Api, job: str):
    seen = await api.get(f"/{job}")
    assert {sub["sub_job_id"]: sub["status"] for sub in seen["sub_jobs"]} == {
        f"{job}:sampling:0": "running",
        f"{job}:training:0": "running",
    }
    assert (await api.get("/capacity"))["in_use_gpus"] >= 2


async def test_cancel_ends_the_processes_within_two_seconds_even_while_starting(
    api: Api, service: EmbeddedService, job: str, model: str
):
    server = psutil.Process(service.pid)
    before = {child.pid for child in server.children(recursive=True)}
    created = await api.post("", json={"sub_job_configs": [training_config(model), sampling_config(model)]})
    job_id = created["job_id"]
    await api.wait_for_job(job_id, "initializing")
    answer = await api.call("POST", f"/{job_id}/generate", json={"prompts": [[1]]})
    assert answer.status_code == 409
    assert "initializing" in answer.json()["message"]
    ends = time.monotonic() + 10
    while len({child.pid for child in server.children(recursive=True)} - before) < 2:
        assert time.monotonic() < ends
    started = time.monotonic()
    await api.post(f"/{job_id}:cancel")
    assert {child.pid for child in server.children(recursive=True)} == before
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("change", "status", "named"),
    [
        ({"sub_job_configs": []}, 422, "sub_job_configs"),
        ({"sub_job_configs": None}, 422, "sub_job_configs"),
        ({"job_id": "a:b"}, 422, "job_id"),
        ({"job_id": "../up"}, 422, "job_id"),
        ({"job_id": "capacity"}, 422, "capacity"),
        ({"idle_timeout_seconds": 10}, 422, "idle_timeout_seconds"),
        ({"pending_timeout_seconds": 1}, 422, "pending_timeout_seconds"),
    ],
)
async def test_a_bad_job_is_refused_by_field(api: Api, model: str, change: dict, status: int, named: str):
    answer = await api.call("POST", "", json={"sub_job_configs": [training_config(model)], **change})
    assert answer.status_code == status
    assert named in answer.json()["message"]


async def test_sub_jobs_that_cannot_be_served_are_refused(api: Api, model: str):
    for config, status, named in (
        (log_probability_config(model, mb_spec={"max_tokens_per_mb": 0}), 422, "inference_config.mb_spec"),
        ({**sampling_config(model), "job_type": "training"}, 422, "training_config"),
        ({"job_type": "dancing", "model_name": model}, 422, "job_type"),
        ({**training_config(model), "model_name": ""}, 422, "model_name"),
        (training_config(model, torch_threads=0), 422, "torch_threads"),
        (training_config(model, optimizer={"name": "AdamW", "speed": 1}), 422, "training_config.optimizer.speed"),
        (sampling_config(model, max_seq_len="long"), 422, "inference_config.max_seq_len"),
        (training_config(model, peft_config={"r": 8}), 422, "training_config.peft_config.peft_type"),
        (training_config(model, peft_config={"peft_type": "Lora"}), 422, "target_modules"),
        (training_config(model, scheduler={"name": "cosine"}), 422, "total_steps"),
        (training_config(model, multiplex_job_id="a:training:0"), 501, "multiplex_job_id"),
    ):
        answer = await api.call("POST", "", json={"sub_job_configs": [config]})
        assert answer.status_code == status, answer.text
        assert named in answer.json()["message"]
    two = await api.call("POST", "", json={"sub_job_configs": [training_config(model), training_config(model)]})
    assert two.status_code == 422
    for content in (b"", b"[]", b"{"):
        assert (await api.call("POST", "", content=content)).status_code in (400, 422)


async def test_an_engine_that_cannot_start_fails_the_job_with_the_reason(api: Api, tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "no_such_architecture"}')
    body = {"job_id": "wrong", "sub_job_configs": [sampling_config(str(tmp_path))]}
    await api.post("", json=body)
    failed = await api.wait_for_job("wrong", "failed")
    assert "wrong:sampling:0" in failed["reason"]
    assert str(tmp_path) in failed["reason"]
    assert failed["sub_jobs"][0]["status"] == "failed"
