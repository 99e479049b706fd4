import base64
import uuid

import numpy as np
import pytest
from builders.service_api import HELD, Api, chunks_of, sft_batch

from drydock.wire.frame import decode_frame, encode_frame
from drydock.wire.results import join_result, read_result_event

pytestmark = pytest.mark.asyncio(loop_scope="session")


def rows(seed: int = 0, shape: tuple[int, int] = (2, 16)) -> np.ndarray:
    return np.random.default_rng(seed).integers(5, 200, shape)


async def test_supervised_fine_tuning_through_the_api_lowers_the_loss(api: Api, job: str):
    ids = rows()
    losses = []
    for _ in range(8):
        [chunk] = chunks_of(sft_batch(ids))
        result = await api.result(f"/{job}/forward-backward", content=chunk)
        losses.append(result["avg_loss"])
        assert result["metrics"]["tokens"] == 30
        step = await api.result(f"/{job}/step", json={"learning_rate": 0.01})
        assert step["last_lr"] == 0.01
        assert step["metrics"]["grad_norm"] > 0
    assert losses[-1] < losses[0] / 2
    assert losses == sorted(losses, reverse=True)


async def test_chunks_of_one_upload_make_one_request_and_repeats_the_same_one(api: Api, job: str):
    path = f"/{job}/forward-backward"
    group_id = str(uuid.uuid4())
    bodies = chunks_of(sft_batch(rows(1, (4, 200))), group_id=group_id, max_bytes=12_000)
    assert len(bodies) > 2
    restart = await api.call("POST", path, content=bodies[1])
    assert restart.status_code == 409
    assert restart.json()["detail"]["code"] == "chunk_group_restart_required"
    for body in bodies[:-1]:
        assert "request_id" not in await api.post(path, content=body)
    first = await api.post(path, content=bodies[-1])
    assert set(first) == {"request_id", "job_id"}
    assert "request_id" not in await api.post(path, content=bodies[0])
    again = await api.post(path, content=bodies[-1], headers=HELD)
    assert again["request_id"] == first["request_id"]
    assert again["status"] == "completed"
    other = chunks_of(sft_batch(rows(2, (4, 200))), group_id=group_id, max_bytes=12_000)
    conflict = await api.call("POST", path, content=other[0])
    assert conflict.status_code == 409
    assert conflict.json()["detail"]["code"] == "chunk_group_conflict"
    await api.result(f"/{job}/step", json={"learning_rate": 0.0})


async def test_an_idempotency_key_steps_once(api: Api, job: str):
    [chunk] = chunks_of(sft_batch(rows()))
    await api.result(f"/{job}/forward-backward", content=chunk)
    headers = {**HELD, "Idempotency-Key": "step-1"}
    first = await api.post(f"/{job}/step", json={"learning_rate": 0.0}, headers=headers)
    again = await api.post(f"/{job}/step", json={"learning_rate": 0.0}, headers=headers)
    assert first == again
    assert first["status"] == "completed"
    other = await api.call("POST", f"/{job}/step", json={"learning_rate": 0.5}, headers=headers)
    assert other.status_code == 422
    assert "Idempotency-Key" in other.json()["message"]
    assert "key:step-1" not in other.text


async def test_tensors_come_as_lists_or_as_a_frame_or_as_chunks(api: Api, job: str):
    batch = sft_batch(rows(), post=["compute_logprobs"])
    [plain] = chunks_of(batch)
    listed = await api.result(f"/{job}/forward-backward", content=plain)
    logprobs = np.array(listed["post_process_outputs"]["logprobs"])
    assert logprobs.shape == (2, 16)
    [asked] = chunks_of(batch, tensors=True)
    envelope = await api.result(f"/{job}/forward-backward", content=asked)
    assert envelope["wire_format"] == "DSSST1"
    value = decode_frame(base64.b64decode(envelope["payload_b64"])).value
    np.testing.assert_allclose(value["post_process_outputs"]["logprobs"], logprobs, atol=1e-6)
    assert isinstance(value["avg_loss"], float)

    [large] = chunks_of(sft_batch(np.full((2500, 240), 7), post=["compute_logprobs"]), tensors=True)
    state = await api.post(f"/{job}/forward-backward", content=large, headers=HELD)
    state = await api.poll(job, state["request_id"], params={"max_events": 1})
    events = list(state["events"])
    assert state["next_cursor"]
    while state.get("next_cursor"):
        page = {"max_events": 1, "cursor": state["next_cursor"]}
        state = await api.poll(job, state["request_id"], params=page)
        assert state == await api.poll(job, state["request_id"], params=page)
        events += state["events"]
    assert state["status"] == "completed"
    joined = join_result(read_result_event(event) for event in events)
    assert joined["post_process_outputs"]["logprobs"].shape == (2500, 240)
    await api.result(f"/{job}/step", json={"learning_rate": 0.0})


async def test_bad_batches_are_refused_by_field_or_fail_with_the_users_blame(api: Api, job: str):
    good = sft_batch(rows())
    for change, status, named in (
        ({"kwargs": {}}, 422, "kwargs.input_ids"),
        ({"kwargs": {"input_ids": np.arange(4)}}, 422, "kwargs.input_ids"),
        ({"kwargs": {"input_ids": np.zeros((0, 4), np.int64)}}, 422, "kwargs.input_ids"),
        ({"context": {"loss_mask": np.ones((3, 16), np.float32)}}, 422, "loss_mask"),
    ):
        [chunk] = chunks_of({**good, **change})
        answer = await api.call("POST", f"/{job}/forward-backward", content=chunk)
        assert (answer.status_code, named in answer.json()["message"]) == (status, True), answer.text
    for content in (b"", b"garbage", b"\x80\x04pickle", encode_frame([1, 2])):
        assert (await api.call("POST", f"/{job}/forward-backward", content=content)).status_code in (400, 422)
    [chunk] = chunks_of({**good, "processing": {"loss_fn": "causal_cross_entropy", "config": {"dp_size": -3}}})
    state = await api.post(f"/{job}/forward-backward", content=chunk, headers=HELD)
    assert (state["status"], state["blame"]) == ("failed", "user")
    assert "dp_size" in state["error"]
    page = await api.operation(job, "tail-logs", sub_job_id=f"{job}:training:0", payload={"max_lines": 5000})
    [logged] = [entry for entry in page["entries"] if "dp_size" in entry.get("msg", "")]
    assert logged["level"] == "WARNING"
    assert "exception" not in logged
    state = await api.post(f"/{job}/step", json={}, headers=HELD)
    assert state["status"] == "failed"
    assert "step without gradients" in state["error"]
    answer = await api.call("POST", f"/{job}/step", json={"learning_rate": "fast"})
    assert answer.status_code == 422
    assert "learning_rate" in answer.json()["message"]


async def test_a_checkpoint_is_listed_and_brings_the_weights_back(api: Api, job: str):
    async def loss() -> float:
        [chunk] = chunks_of(sft_batch(rows(5)))
        result = await api.result(f"/{job}/forward-backward", content=chunk)
        return result["avg_loss"]

    before = await loss()
    await api.result(f"/{job}/step", json={"learning_rate": 0.0})
    saved = await api.result(f"/{job}/save", json={"checkpoint_type": "Resumable", "export_hf": False})
    assert saved["checkpoint_id"].startswith("cp_")
    assert f"/checkpoints/{saved['checkpoint_id']}/" in saved["stage_path"]
    named = await api.result(f"/{job}/save", json={"checkpoint_id": "best", "checkpoint_type": "weights-only"})
    assert named["checkpoint_id"] == "best"
    taken = await api.call("POST", f"/{job}/save", json={"checkpoint_id": "best"})
    assert taken.status_code == 422
    assert (await api.call("POST", f"/{job}/save", json={"checkpoint_id": "../../x"})).status_code == 422
    listed = (await api.get(f"/{job}/checkpoints"))["checkpoints"][-2:]
    assert [entry["checkpoint_id"] for entry in listed] == [saved["checkpoint_id"], "best"]
    assert listed[0]["checkpoint_type"] == "resumable"
    assert listed[0]["avg_loss"] == pytest.approx(before)

    await loss()
    await api.result(f"/{job}/step", json={"learning_rate": 0.05})
    assert abs(await loss() - before) > 1e-3
    await api.result(f"/{job}/load", json={"checkpoint_id": saved["checkpoint_id"]})
    assert await loss() == pytest.approx(before, abs=1e-5)
    await api.result(f"/{job}/step", json={"learning_rate": 0.0})
    unknown = await api.call("POST", f"/{job}/load", json={"checkpoint_id": "nope"})
    assert unknown.status_code == 422


async def test_logs_are_read_in_pages(api: Api, job: str):
    entries, cursor = [], None
    while True:
        payload = {"max_lines": 1, **({"cursor": cursor} if cursor else {})}
        page = await api.operation(job, "tail-logs", sub_job_id=f"{job}:training:0", payload=payload)
        entries += page["entries"]
        cursor = page["next_cursor"]
        if page["eof"]:
            break
    messages = [entry.get("msg", "") for entry in entries]
    assert any("is ready" in message for message in messages)
    assert {"ts", "level", "logger", "msg"} <= set(entries[0])
    ambiguous = await api.call("POST", f"/{job}/operation", json={"operation_type": "tail-logs"})
    assert ambiguous.status_code == 400
    unknown = await api.call("POST", f"/{job}/operation", json={"operation_type": "zmd-events"})
    assert unknown.status_code == 501
