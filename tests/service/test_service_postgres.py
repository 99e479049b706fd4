"""A whole service on PostgreSQL: a job's life, what is left of it after a restart, and what it used."""

import time
from pathlib import Path

import numpy as np
import pytest
from builders.service_api import Api, chunks_of, sampling_config, sft_batch, training_config

from drydock.errors import UserError
from drydock.service.embedded import EmbeddedService

PROMPT = [5, 6, 7]


async def test_a_job_on_postgresql_and_what_it_used(postgres_url: str, state_dir: Path, model: str, tmp_path: Path):
    settings = {"database_url": postgres_url, "pool": {"CPU": 3}, "prices": {"cpu_slot_seconds": 2.0}}
    async with EmbeddedService(state_dir, **settings) as service, Api.of(service) as api:
        with pytest.raises(UserError, match="another service uses postgresql"):
            async with EmbeddedService(tmp_path / "second", database_url=postgres_url):
                pass
        assert (await api.get("/usage"))["usage"] == []
        before = time.time()
        await api.post("", json={"job_id": "j", "sub_job_configs": [training_config(model), sampling_config(model)]})
        await api.wait_for_job("j")
        free = await api.get("/capacity")
        assert (free["max_total_gpus"], free["in_use_gpus"], free["available_gpus"]) == (3, 2, 1)
        assert (await api.get("/capacity", params={"hardware": "H200"}))["max_total_gpus"] == 0
        ids = np.arange(3, 23).reshape(2, 10)
        batch = sft_batch(ids, post=["compute_logprobs"])
        batch["kwargs"]["attention_mask"][1, 6:] = 0
        batch["context"]["loss_mask"][1, 5:] = 0
        (body,) = chunks_of(batch, tensors=True)
        state = await api.post("/j/forward-backward", content=body, headers={"Prefer": "wait=60"})
        assert state["status"] == "completed", state.get("error")
        await api.result("/j/step", json={})
        result = await api.result(
            "/j/generate",
            json={
                "prompts": [PROMPT, PROMPT],
                "sampling_params": {"max_tokens": 4, "temperature": 0, "ignore_eos": True},
            },
        )
        sampled = sum(len(item["token_ids"]) for item in result["results"])
        used = await api.get("/j/usage")
        held_s = time.time() - before
        assert used["meters"]["trained_tokens"] == 16
        assert used["meters"]["prompt_tokens"] == 2 * len(PROMPT)
        assert used["meters"]["sampled_tokens"] == sampled > 0
        assert 1.0 < used["meters"]["cpu_slot_seconds"] < 2 * held_s
        assert used["cost"] == pytest.approx(2 * used["meters"]["cpu_slot_seconds"])
        assert [part["sub_job_id"] for part in used["sub_jobs"]] == ["j:sampling:0", "j:training:0"]
        await api.post("/j:cancel")
        at_its_end = (await api.get("/j/usage"))["meters"]
        assert (await api.get("/capacity"))["available_gpus"] == 3
        for by in ("nothing", "job%00"):
            assert (await api.call("GET", "/usage", params={"by": by})).status_code == 422
        refused = await api.call("GET", "/usage", params={"since": "yesterday"})
        assert (refused.status_code, "since: 'yesterday'" in refused.text) == (422, True)
        assert (await api.call("GET", "/usage", params={"job_id": "unknown"})).status_code == 404
    async with EmbeddedService(state_dir, **settings) as service, Api.of(service) as api:
        assert (await api.get("/j"))["status"] == "cancelled"
        again = await api.poll("j", state["request_id"])
        assert (again["status"], again["result"]) == ("completed", state["result"])
        assert (await api.get("/j/usage"))["meters"] == at_its_end
        whole = await api.get("/usage", params={"by": "user"})
        assert [line["user"] for line in whole["usage"]] == ["operator"]
        assert whole["total"]["meters"] == at_its_end
