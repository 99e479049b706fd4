"""A rollout whose sampler fails, or gives a turn that cannot be trained on."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.proxy_calls import START, post
from builders.running_proxy import FailingSampler, Running
from builders.scripted_sampler import ScriptedSampler, scripted

from drydock.errors import ServiceUnavailable
from drydock.proxy import ChatTemplate, SampledTurn
from drydock.wire.rest import SamplingParams


class FixedSampler:
    def __init__(self, turn: SampledTurn) -> None:
        self.turn = turn

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        return self.turn


async def test_a_sampler_failure_is_recorded_and_never_sampled_again(running: Running) -> None:
    sampler = FailingSampler(ServiceUnavailable("the service is gone"))
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r")
        for messages in (START, START, [*START, {"role": "user", "content": "?"}]):
            response = await post(session, messages)
            assert response.status_code == 500
            assert response.json()["error"]["code"] == "sampler_error"
        record = await session.close()
    assert record.sampler_error == "ServiceUnavailable: the service is gone"
    assert sampler.count == 1
    assert record.turns == []
    assert record.samples == []


@pytest.mark.parametrize(
    ("turn", "complaint"),
    [
        (SampledTurn((5, 2), (-0.1,), 0, "stop", ""), "1 log-probs for 2 tokens"),
        (SampledTurn((5, 2), (-0.1, float("nan")), 0, "stop", ""), "not finite"),
        (SampledTurn((5,) * 500, (-0.1,) * 500, 0, "length", ""), "500 tokens where 400 were allowed"),
    ],
)
async def test_a_turn_that_cannot_be_trained_on_is_a_sampler_error(
    running: Running, turn: SampledTurn, complaint: str
) -> None:
    async with running(FixedSampler(turn)) as proxy:
        session = proxy.open_rollout("r")
        assert (await post(session, START)).status_code == 500
        assert complaint in ((await session.close()).sampler_error or "")


async def test_a_turn_that_takes_too_long_is_a_sampler_error(template: ChatTemplate, running: Running) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "late", delay_s=30)
    async with running(sampler, call_deadline_s=0.1) as proxy:
        session = proxy.open_rollout("r")
        assert (await post(session, START)).status_code == 500
        assert "gave up waiting for a sampled turn of rollout r" in ((await session.close()).sampler_error or "")


async def test_a_turn_that_cannot_be_written_down_is_not_answered(
    template: ChatTemplate, running: Running, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    async with running(scripted(template, ["ok"])) as proxy:
        session = proxy.open_rollout("r", record_path=tmp_path / "file" / "r.jsonl")
        assert (await post(session, START)).status_code == 500
        assert session.record.sampler_error
