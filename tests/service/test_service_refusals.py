"""What cannot work is refused at once, with a status that clients do not repeat, naming field and value."""

import base64
import time
from pathlib import Path

import numpy as np
import pytest
from builders.hollow_model import model_folder
from builders.service_api import HELD, Api, chunks_of, sampling_config, sft_batch, training_config
from builders.tiny_model import build_tiny_model

from drydock.service.model_size import machine_bytes
from drydock.wire.frame import encode_frame

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_ONCE_S = 2.0


async def refused(api: Api, path: str, status: int, *named: str, method: str = "POST", **fields: object) -> None:
    started = time.monotonic()
    answer = await api.call(method, path, **fields)
    assert time.monotonic() - started < AT_ONCE_S
    assert answer.status_code == status, answer.text
    for name in named:
        assert name in answer.json()["message"]


async def test_jobs_that_could_never_run(api: Api, model: str, tmp_path: Path):
    large = str(model_folder(tmp_path / "large", machine_bytes()))
    source = {"checkpoint_id": "cp_none", "source_job_id": "nobody"}
    for config, named in (
        (sampling_config("/no/model"), ("sub_job_configs.0.model_name", "/no/model")),
        (sampling_config(str(tmp_path)), ("sub_job_configs.0.model_name", "config.json")),
        (training_config(large), ("sub_job_configs.0.model_name", "GiB")),
        (training_config(model, n_gpus=9999), ("n_gpus", "9999")),
        (training_config(model, n_gpus=0), ("n_gpus", "0")),
        (training_config(model, n_gpus="two"), ("n_gpus", "two")),
        ({**training_config(model), "seed": 2**70}, ("sub_job_configs.0.seed",)),
        ({**training_config(model), "source_checkpoint_info": source}, ("source_job_id", "nobody")),
        ({**training_config(model), "source_checkpoint_info": {}}, ("source_checkpoint_info.checkpoint_id",)),
    ):
        await refused(api, "", 422, *named, json={"sub_job_configs": [config]})
    body = {"sub_job_configs": [training_config(model)], "hardware": "Z80"}
    await refused(api, "", 422, "hardware", "Z80", json=body)
    for reserved in ("capacity", "usage", "whoami", "signed"):
        await refused(api, "", 422, reserved, json={**body, "hardware": None, "job_id": reserved})


async def test_text_that_no_store_and_no_answer_can_hold(api: Api, model: str):
    for text in (r"\u0000", r"\ud800", r"\udfff tail"):
        content = f'{{"comment": "{text}", "sub_job_configs": []}}'
        await refused(api, "", 400, "NUL", content=content)
    await refused(api, "", 400, "not valid JSON", content=b'{"a":' + b"[" * 200_000)


async def test_unknown_jobs_requests_and_checkpoints(api: Api, job: str):
    await refused(api, "/nobody", 404, "nobody", method="GET")
    await refused(api, "/nobody/step", 404, "nobody", json={})
    await refused(api, f"/{job}/requests/req_none", 404, "req_none", method="GET")
    await refused(api, f"/{job}/checkpoints/cp_none:export", 404, "cp_none")
    await refused(api, f"/{job}/checkpoints/cp_none", 404, "cp_none", method="DELETE")
    await refused(api, f"/{job}/load", 422, "cp_none", json={"checkpoint_id": "cp_none"})
    other = {"checkpoint_id": "x", "source_job_id": "nobody"}
    await refused(api, f"/{job}/load", 422, "source_job_id", "nobody", json=other)


async def test_batches_that_no_trainer_could_take(api: Api, job: str):
    good = sft_batch(np.full((2, 16), 7))
    ids = good["kwargs"]["input_ids"]
    outside = ids.copy()
    outside[1, 3] = 400
    padded = outside.copy()
    mask = np.ones_like(ids)
    mask[1, 3:] = 0
    for change, named in (
        ({"kwargs": {"input_ids": outside}}, ("token 400", "row 1", "vocabulary of 400")),
        ({"kwargs": {"input_ids": -ids}}, ("token -7", "vocabulary")),
        ({"kwargs": {"input_ids": np.full((1, 300), 7)}, "context": {}}, ("300 tokens", "max_seq_len 256")),
        ({"kwargs": {"input_ids": ids.astype(np.float32)}}, ("kwargs.input_ids", "float32")),
        ({"kwargs": {"input_ids": ids.tolist()}}, ("kwargs.input_ids",)),
        ({"kwargs": {"input_ids": ids, "attention_mask": np.ones((2, 15))}}, ("attention_mask", "[2, 15]")),
        ({"context": {"loss_mask": np.ones((3, 16), np.float32)}}, ("context.loss_mask", "3 rows")),
        ({"context": {"loss_mask": np.ones((2, 15), np.float32)}}, ("context.loss_mask", "15 tokens")),
        ({"context": [1]}, ("context", "list")),
        ({"processing": {"loss_fn": "grop"}}, ("processing.loss_fn", "'grop'", "did you mean 'grpo'")),
        ({"processing": {"loss_fn": "os.system"}}, ("processing.loss_fn", "os.system")),
        ({"processing": {"loss_fn": 3}}, ("processing.loss_fn",)),
        ({"processing": {"loss_fn": "grpo", "config": {"eps_clp": 1}}}, ("processing.config.eps_clp", "eps_clip")),
        ({"processing": {"loss_fn": "grpo", "post": ["run"]}}, ("processing.post", "run")),
    ):
        [chunk] = chunks_of({**good, **change})
        await refused(api, f"/{job}/forward-backward", 422, *named, content=chunk)
    [chunk] = chunks_of({**good, "kwargs": {"input_ids": padded, "attention_mask": mask}, "context": {}, **NO_LOSS})
    state = await api.post(f"/{job}/forward-backward", content=chunk, headers=HELD)
    assert state["status"] == "failed", "pads may hold any id; what is missing here are labels"
    assert "labels" in state["error"]


NO_LOSS = {"processing": None}


async def test_prompts_and_parameters_that_no_sampler_could_take(api: Api, job: str):
    for body, named in (
        ({"prompts": [[5], [6, 400]]}, ("prompts.1", "token 400", "vocabulary of 400")),
        ({"prompts": [[-1]]}, ("prompts.0", "token -1")),
        ({"prompts": [[5] * 2048]}, ("prompts.0", "2048 tokens", "max_seq_len 2048")),
        ({"prompts": [[5]], "sampling_params": {"temperature": -1}}, ("temperature",)),
        ({"prompts": [[5]], "sampling_params": {"seed": 2**64}}, ("seed",)),
        ({"prompts": [[5]], "sampling_params": {"top_k": 2**40}}, ("top_k",)),
        ({"prompts": [[5]], "sampling_params": [{}, {}]}, ("sampling_params", "2 entries")),
    ):
        await refused(api, f"/{job}/generate", 422, *named, json=body)
        await refused(api, f"/{job}/generate-stream", 422, *named, json=body)
    infinite = b'{"prompts": [[5]], "sampling_params": {"temperature": Infinity}}'
    await refused(api, f"/{job}/generate", 422, "temperature", content=infinite)


async def test_operations_that_are_not_served_say_why(api: Api, job: str):
    def body(kind: str, **fields: object) -> dict[str, object]:
        return {"operation_type": kind, **fields}

    path = f"/{job}/operation"
    for kind, said in (
        ("zmd-events", "tail-logs"),
        ("bootstrap-router-replay", "expert routing"),
        ("router-replay-discard", "expert routing"),
        ("dance", "known are"),
    ):
        await refused(api, path, 501, kind, said, json=body(kind))
    good = {"kwargs": {"input_ids": [[5, 6]]}}
    await refused(api, path, 400, "training", json=body("forward", sub_job_type="sampling", payload=good))
    await refused(api, path, 422, "payload.kwargs", json=body("forward"))
    ragged = {"kwargs": {"input_ids": [[5, 6], [7]]}}
    await refused(api, path, 422, "kwargs.input_ids", json=body("forward", payload=ragged))
    outside = {"kwargs": {"input_ids": [[5, 999]]}}
    await refused(api, path, 422, "token 999", json=body("forward", payload=outside))
    await refused(api, path, 422, "payload_b64", json=body("forward", payload={"payload_b64": "§"}))
    pickled = base64.b64encode(b"\x80\x04\x95\x0b").decode()
    await refused(api, path, 400, json=body("forward", payload={"payload_b64": pickled}))
    listed = base64.b64encode(encode_frame([1])).decode()
    await refused(api, path, 422, "list", json=body("forward", payload={"payload_b64": listed}))
    await refused(api, path, 422, "timeout_s", json=body("reset-prefix-cache", payload={"timeout_s": True}))
    await refused(
        api, path, 422, "max_lines", json=body("tail-logs", sub_job_type="training", payload={"max_lines": "a"})
    )
    for cursor, events in (("²", None), ("9" * 5000, None), (None, "²"), (None, "-1")):
        started = await api.post(f"/{job}/generate", json={"prompts": [[5]], "sampling_params": {"max_tokens": 1}})
        query = {name: value for name, value in (("cursor", cursor), ("max_events", events)) if value}
        answer = await api.call("GET", f"/{job}/requests/{started['request_id']}", params=query)
        assert answer.status_code == (422 if events else 200)


async def test_a_job_of_two_models_and_one_without_a_sampler(api: Api, model: str, tmp_path: Path):
    wide = str(build_tiny_model(tmp_path / "wide", hidden_size=32, head_dim=8))
    body = {"job_id": "odd", "sub_job_configs": [training_config(model), sampling_config(wide)]}
    await api.post("", json=body)
    await api.post("", json={"job_id": "trainer-only", "sub_job_configs": [training_config(model)]})
    await api.wait_for_job("odd")
    payload = {"source_sub_job_id": "odd:training:0", "target_sub_job_ids": ["odd:sampling:0"]}
    sync = {"operation_type": "weight-sync", "payload": payload}
    await refused(api, "/odd/operation", 422, "odd:sampling:0", "hidden_size 64 != 32", json=sync)
    await api.post("/odd:cancel")
    await api.wait_for_job("trainer-only")
    await refused(api, "/trainer-only/generate", 400, "no sampling sub-job", json={"prompts": [[5]]})
    await refused(api, "/trainer-only/generate-stream", 400, "no sampling sub-job", json={"prompts": [[5]]})
    await api.post("/trainer-only:cancel")
    await refused(api, "/trainer-only/step", 410, "cancelled", json={})
