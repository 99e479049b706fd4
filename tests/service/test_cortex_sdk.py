"""The published client of the hosted service, unmodified, against ours."""

import asyncio

import numpy as np
import pytest
from builders.service_api import sampling_config, sft_batch, training_config

from drydock.service.embedded import EmbeddedService

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_real_cortex_training_client_works_unmodified(service: EmbeddedService, model: str):
    pytest.importorskip("cortex_training")
    await asyncio.to_thread(_use_client, service.base_url, service.token.get_secret_value(), model)


def _use_client(base_url: str, token: str, model: str) -> None:
    import torch
    from cortex_training import CortexTrainingClient, wire

    url = base_url.replace("http://", f"http://drydock:{token}@")
    with CortexTrainingClient(base_url=url, database="", schema="PUBLIC", poll_interval=0.05) as client:
        body = {
            "job_id": "sdk",
            "comment": "from the SDK",
            "sub_job_configs": [training_config(model), sampling_config(model)],
        }
        assert client.create_job_from_body(body)["job_id"] == "sdk"
        assert client.get_job("sdk")["comment"] == "from the SDK"
        assert client.wait_for_job("sdk")["status"] == "running"
        assert "sdk" in [job["job_id"] for job in client.list_jobs(status="running")]
        assert client.get_capacity()["has_reservation"] is False

        params = {"max_tokens": 5, "temperature": 0.0, "logprobs": 0, "ignore_eos": True}
        request = client.generate("sdk", [[5, 6, 7], "a prompt"], params, routing_key="r", strict=False)
        results = client.poll_request("sdk", request)["results"]
        assert [len(result["token_ids"]) for result in results] == [5, 5]
        assert len(results[0]["logprobs"]) == 5

        plain = sft_batch(np.random.default_rng(0).integers(5, 200, (2, 12)), post=["compute_logprobs"])
        batch = {
            **plain,
            "kwargs": {name: torch.from_numpy(array) for name, array in plain["kwargs"].items()},
            "context": {name: torch.from_numpy(array) for name, array in plain["context"].items()},
        }
        options = {"response_options": {"format": "dssst1", "delivery": "chunked"}}
        losses = []
        for _ in range(2):
            request = client.forward_backward("sdk", wire.dumps(batch, metadata=options))
            result = client.poll_request("sdk", request)
            assert result["post_process_outputs"]["logprobs"].shape == (2, 12)
            losses.append(result["avg_loss"])
            step = client.poll_request("sdk", client.step("sdk", learning_rate=0.01))
        assert losses[1] < losses[0]
        assert step["global_steps"] == 2

        sync = client.weight_sync("sdk", "sdk:training:0", ["sdk:sampling:0"])
        request_id = sync if isinstance(sync, str) else sync["request_id"]
        assert client.poll_request("sdk", request_id)["policy_version"] == 2
        client.reset_prefix_cache("sdk", sub_job_type="sampling")
        saved = client.poll_request("sdk", client.save("sdk", checkpoint_type="weights-only"))
        assert [cp["checkpoint_id"] for cp in client.list_checkpoints("sdk")] == [saved["checkpoint_id"]]
        with pytest.raises(RuntimeError, match="vocabulary"):
            client.poll_request("sdk", client.generate("sdk", [[10**6]]))
        logs = client.tail_logs("sdk", sub_job_id="sdk:training:0", max_lines=10)
        assert logs["entries"]
        client.cancel_job("sdk")
        assert client.get_job("sdk")["status"] == "cancelled"
