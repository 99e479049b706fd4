import asyncio

import httpx
import numpy as np
import pytest
from builders.service_api import Api, chunks_of, sampling_config, sft_batch, training_config

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = [11, 12, 13]
GREEDY = {"max_tokens": 6, "temperature": 0.0, "ignore_eos": True}


async def train(api: Api, job_id: str, learning_rate: float) -> int:
    """One step on fixed rows; the number of steps taken so far."""
    [chunk] = chunks_of(sft_batch(np.random.default_rng(9).integers(5, 200, (2, 16))))
    await api.result(f"/{job_id}/forward-backward", content=chunk)
    return (await api.result(f"/{job_id}/step", json={"learning_rate": learning_rate}))["global_steps"]


async def sample(api: Api, job_id: str) -> dict:
    answer = await api.result(f"/{job_id}/generate", json={"prompts": [PROMPT], "sampling_params": GREEDY})
    return answer["results"][0]


async def test_jobs_start_from_checkpoints_of_either_kind_and_keep_them_from_deletion(api: Api, job: str, model: str):
    await api.result(f"/{job}/save", json={"checkpoint_id": "before"})
    steps = await train(api, job, 0.02)
    await api.result(f"/{job}/save", json={"checkpoint_id": "resumable"})
    await api.result(f"/{job}/save", json={"checkpoint_id": "weights", "checkpoint_type": "weights-only"})
    payload = {"source_sub_job_id": f"{job}:training:0", "target_sub_job_ids": [f"{job}:sampling:0"]}
    synced = await api.result(f"/{job}/operation", json={"operation_type": "weight-sync", "payload": payload})
    wanted = await sample(api, job)

    def source(checkpoint_id: str) -> dict:
        return {"source_checkpoint_info": {"checkpoint_id": checkpoint_id, "source_job_id": job}}

    fresh = training_config(model, load_optimizer_states=False)
    configs = [{**training_config(model), **source("resumable")}, {**sampling_config(model), **source("weights")}]
    await api.post("", json={"job_id": "grown", "sub_job_configs": configs})
    await api.post("", json={"job_id": "fresh", "sub_job_configs": [{**fresh, **source("resumable")}]})
    in_use = await api.call("DELETE", f"/{job}/checkpoints/weights")
    assert in_use.status_code == 409
    assert "grown" in in_use.json()["message"]
    await asyncio.gather(api.wait_for_job("grown"), api.wait_for_job("fresh"))

    found = await sample(api, "grown")
    assert found["token_ids"] == wanted["token_ids"]
    assert found["policy_version"] == wanted["policy_version"] == steps == synced["policy_version"]
    [trainer, _] = (await api.get("/grown"))["sub_jobs"]
    assert trainer["source_checkpoint_info"] == {"checkpoint_id": "resumable", "source_job_id": job}
    resumed, restarted = [await _loss_after_a_step(api, name, steps) for name in ("grown", "fresh")]
    continued = await _loss_after_a_step(api, job, steps)
    assert resumed == pytest.approx(continued, rel=1e-5), "weights and optimizer go on where the checkpoint stood"
    assert abs(restarted - continued) > 1e-4, "a new optimizer takes another step"
    await asyncio.gather(api.post("/grown:cancel"), api.post("/fresh:cancel"))

    for checkpoint_id in ("resumable", "weights"):
        assert (await api.call("DELETE", f"/{job}/checkpoints/{checkpoint_id}")).status_code == 200
    assert (await api.call("DELETE", f"/{job}/checkpoints/weights")).status_code == 404
    await api.result(f"/{job}/load", json={"checkpoint_id": "before"})
    await api.result(f"/{job}/operation", json={"operation_type": "weight-sync", "payload": payload})


async def _loss_after_a_step(api: Api, job_id: str, steps: int) -> float:
    assert await train(api, job_id, 0.02) == steps + 1
    [chunk] = chunks_of(sft_batch(np.random.default_rng(9).integers(5, 200, (2, 16))))
    loss = (await api.result(f"/{job_id}/forward-backward", content=chunk))["avg_loss"]
    await api.result(f"/{job_id}/step", json={"learning_rate": 0.0})
    return loss


async def test_what_a_trainer_goes_on_from_after_its_death_stays(api: Api, model: str):
    trainer = training_config(model)
    trainer["training_config"]["on_worker_loss"] = "restart"
    await api.post("", json={"job_id": "lasting", "sub_job_configs": [trainer]})
    await api.wait_for_job("lasting")
    for checkpoint_id in ("first", "second"):
        await api.result("/lasting/save", json={"checkpoint_id": checkpoint_id})
        needed = await api.call("DELETE", f"/lasting/checkpoints/{checkpoint_id}")
        assert needed.status_code == 409
        assert "lasting goes on from" in needed.json()["message"]
    assert (await api.call("DELETE", "/lasting/checkpoints/first")).status_code == 200
    await api.post("/lasting:cancel")
    assert (await api.call("DELETE", "/lasting/checkpoints/second")).status_code == 200


async def test_a_checkpoint_that_a_job_names_as_its_model_stays(api: Api, job: str):
    saved = await api.result(f"/{job}/save", json={"checkpoint_id": "named", "checkpoint_type": "weights-only"})
    sampler = sampling_config(saved["checkpoint_path"])
    await api.post("", json={"job_id": "naming", "sub_job_configs": [sampler]})
    needed = await api.call("DELETE", f"/{job}/checkpoints/named")
    assert needed.status_code == 409
    assert "a model or an adapter of job naming" in needed.json()["message"]
    await api.post("/naming:cancel")
    assert (await api.call("DELETE", f"/{job}/checkpoints/named")).status_code == 200


async def test_an_export_opens_the_files_of_the_manifest_and_nothing_else(api: Api, job: str):
    await api.result(f"/{job}/save", json={"checkpoint_id": "exported", "checkpoint_type": "weights-only"})
    [entry] = [e for e in (await api.get(f"/{job}/checkpoints"))["checkpoints"] if e["checkpoint_id"] == "exported"]
    export = await api.post(f"/{job}/checkpoints/exported:export")
    files = {file["filename"]: file for file in export["files"]}
    assert sum(file["size_bytes"] for file in files.values()) == entry["size_bytes"]
    assert export["expires_at"].endswith("Z")
    weights = files["model.safetensors"]
    async with httpx.AsyncClient() as stranger:
        whole = await stranger.get(weights["url"])
        assert (whole.status_code, len(whole.content)) == (200, weights["size_bytes"])
        part = await stranger.get(weights["url"], headers={"Range": "bytes=8-15"})
        assert (part.status_code, part.content) == (206, whole.content[8:16])
        beyond = await stranger.get(weights["url"], headers={"Range": f"bytes={weights['size_bytes']}-"})
        assert beyond.status_code == 416
        base, query = weights["url"].rsplit("/", 1)[0], weights["url"].partition("?")[2]
        for url in (
            f"{base}/config.json?{query}",
            f"{base}/../../../../../service.sqlite?{query}",
            f"{base}/%2e%2e%2f%2e%2e%2fconsole.log?{query}",
            weights["url"].partition("?")[0],
            weights["url"].replace("expires=", "expires=9"),
            weights["url"].replace("/signed/", "/"),
        ):
            assert (await stranger.get(url)).status_code in (401, 403, 404)
        assert (await stranger.delete(weights["url"])).status_code == 404
        await api.call("DELETE", f"/{job}/checkpoints/exported")
        assert (await stranger.get(weights["url"])).status_code == 404
