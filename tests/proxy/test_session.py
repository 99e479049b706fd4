"""A rollout's session without HTTP: completions, refusals, places at the sampler, thinking."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES, Family
from builders.ledger_driver import read
from builders.proxy_calls import START, TOOLS, call_text, tool_result
from builders.scripted_sampler import ScriptedSampler, scripted

from drydock.chat.messages import Message
from drydock.chat.refusal import RequestRefused
from drydock.chat.reply_reader import reader_for
from drydock.chat.template import ChatTemplate
from drydock.proxy import ChatProxy, LoggedTurn, ProxySettings, SampledTurn, Sampler, audit
from drydock.proxy.completion import Completion
from drydock.proxy.request import ChatRequest
from drydock.proxy.session import RolloutSession
from drydock.wire.rest import SamplingParams


@contextlib.asynccontextmanager
async def serving(template: ChatTemplate, sampler: Sampler, **settings: Any) -> AsyncIterator[ChatProxy]:
    chosen = ProxySettings.model_validate({"context_tokens": 4000, "max_new_tokens": 400, **settings})
    async with ChatProxy(template, reader_for(template), sampler, chosen) as proxy:
        yield proxy


def asked(messages: list[dict[str, Any]], *, tools: Any = TOOLS, **fields: Any) -> ChatRequest:
    return ChatRequest("policy", read(messages), tools, **{"max_tokens": None, **fields})


async def refusal_of(session: RolloutSession, request: ChatRequest) -> tuple[int, str | None]:
    with pytest.raises(RequestRefused) as caught:
        await session.complete(request)
    return caught.value.status, caught.value.code


def replay(completion: Completion) -> dict[str, Any]:
    return Message("assistant", completion.reply.content or "", completion.reply.calls).wire_form()


async def test_a_completion_is_one_turn_and_a_retry_gets_the_same(template: ChatTemplate) -> None:
    sampler = scripted(template, [f"Look.\n{call_text('ls')}", "Done."])
    async with serving(template, sampler) as proxy, proxy.open_rollout("r") as session:
        first = await session.complete(asked(START))
        assert (first.reply.content, first.reply.calls[0].arguments) == ("Look.", '{"command": "ls"}')
        assert (first.finish_reason, first.model, first.cached_tokens) == ("tool_calls", "policy", 0)
        assert await session.complete(asked(START)) is first
        message = replay(first)
        second = await session.complete(asked([*START, message, tool_result(message, "a")]))
        assert (second.reply.content, second.finish_reason) == ("Done.", "stop")
        assert second.cached_tokens == first.prompt_tokens + first.completion_tokens
        assert second.prompt_tokens == len(sampler.calls[1][0]) > second.cached_tokens
        assert first.id != second.id
    assert len(sampler.calls) == 2


async def test_without_tools_in_the_request_a_call_stays_text(template: ChatTemplate) -> None:
    call = call_text("ls")
    async with serving(template, scripted(template, [call])) as proxy, proxy.open_rollout("r") as session:
        completion = await session.complete(asked(START, tools=None))
    assert (completion.reply.content, completion.reply.calls, completion.finish_reason) == (call, (), "stop")


async def test_a_turn_cut_by_the_limit_ends_in_length_unless_it_holds_a_call(template: ChatTemplate) -> None:
    call = call_text("ls")
    limit = len(template.encode(call))
    sampler = scripted(template, ["word " * 99, f"{call} and so on"])
    async with serving(template, sampler) as proxy, proxy.open_rollout("r") as session:
        cut = await session.complete(asked(START, max_tokens=5))
        assert (cut.finish_reason, cut.completion_tokens) == ("length", 5)
        other = [START[0], {"role": "user", "content": "Again."}]
        assert (await session.complete(asked(other, max_tokens=limit))).finish_reason == "tool_calls"


async def test_what_cannot_be_served_is_refused_by_code(template: ChatTemplate) -> None:
    full = len(template.first_prompt(START, TOOLS))
    sampler = scripted(template, ["ok"])
    async with serving(template, sampler, context_tokens=full) as proxy, proxy.open_rollout("r") as session:
        assert await refusal_of(session, asked(START)) == (400, "context_length_exceeded")
        record = await session.close()
        assert record.context_full
        assert await refusal_of(session, asked(START)) == (403, "closed")
        assert record.late_calls == 1
    assert record.turns == []


async def test_parameters_that_the_run_decides_are_counted(template: ChatTemplate) -> None:
    async with serving(template, scripted(template, ["ok"])) as proxy, proxy.open_rollout("r") as session:
        await session.complete(asked(START, overridden=("temperature", "top_p")))
        await session.complete(asked(START[1:], overridden=("temperature",)))
        assert (await session.close()).overridden == {"temperature": 2, "top_p": 1}


async def test_calls_of_all_rollouts_share_the_places_at_the_sampler(template: ChatTemplate, tmp_path: Path) -> None:
    sampler = CountingSampler(ScriptedSampler(template, lambda ids, text: "ok", delay_s=0.02))
    async with serving(template, sampler, max_concurrent_calls=3, turn_log=tmp_path) as proxy:
        sessions = [proxy.open_rollout(str(number)) for number in range(12)]
        await asyncio.gather(*(session.complete(asked(START)) for session in sessions))
        records = [await session.close() for session in sessions]
    assert sampler.most == 3
    waited = sorted(record.turns[0].waited_s for record in records)
    assert waited[2] < 0.01 < 0.05 < waited[-1]
    logged = LoggedTurn.model_validate_json((tmp_path / "11.jsonl").read_text())
    assert logged.waited_s == records[11].turns[0].waited_s
    assert all(record.turns[0].seconds < waited[-1] for record in records)


async def test_a_call_that_gets_no_place_in_time_is_a_sampler_error_that_says_so(template: ChatTemplate) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "ok", delay_s=5)
    async with serving(template, sampler, max_concurrent_calls=1, admission_deadline_s=0.05) as proxy:
        busy, idle = proxy.open_rollout("busy"), proxy.open_rollout("idle")
        holding = asyncio.create_task(refusal_of(busy, asked(START)))
        await sampler.called.wait()
        assert await refusal_of(idle, asked(START)) == (500, "sampler_error")
        assert "a place at the sampler for a call of rollout idle" in ((await idle.close()).sampler_error or "")
        await busy.close()
        assert await holding == (403, "closed")


async def test_closing_a_rollout_gives_its_places_to_others(template: ChatTemplate) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "ok", delay_s=0.3)
    async with serving(template, sampler, max_concurrent_calls=1) as proxy:
        leaving, staying = proxy.open_rollout("leaving"), proxy.open_rollout("staying")
        tasks = [[START[0], {"role": "user", "content": f"task {n}"}] for n in range(4)]
        gone = [asyncio.create_task(refusal_of(leaving, asked(task))) for task in tasks]
        await sampler.called.wait()
        waiting = asyncio.create_task(staying.complete(asked(START)))
        await asyncio.sleep(0)
        record = await leaving.close()
        assert (await waiting).reply.content == "ok"
        assert await asyncio.gather(*gone) == [(403, "closed")] * 4
        assert record.turns == []
        assert record.sampler_error is None
    assert len(sampler.calls) == 2


async def test_a_turn_that_comes_after_the_end_is_not_recorded(template: ChatTemplate) -> None:
    sampler = StubbornSampler()
    async with serving(template, sampler) as proxy:
        session = proxy.open_rollout("r")
        waiting = asyncio.create_task(refusal_of(session, asked(START)))
        await sampler.called.wait()
        record = await session.close()
        assert await waiting == (403, "closed")
        assert (record.turns, record.samples, record.sampler_error) == ([], [], None)


THINKING = [family for family in FAMILIES.values() if family.thinks]


@pytest.mark.parametrize("family", THINKING, ids=lambda family: family.name)
@pytest.mark.parametrize("thinking", ["keep", "template"])
async def test_thinking_of_earlier_turns_is_kept_or_shown_as_the_template_does(
    family: Family, thinking: str, tmp_path: Path
) -> None:
    template = family(tmp_path)
    sampler = FamilySampler(family, template)
    async with serving(template, sampler, thinking=thinking) as proxy, proxy.open_rollout("r") as session:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Begin."}]
        for number in range(3):
            completion = await session.complete(asked(messages, tools=None))
            assert completion.reply.reasoning == "Hidden thought."
            messages += [replay(completion), {"role": "user", "content": f"Go on {number}."}]
        record = await session.close()
    shown = [template.decode(prompt).count("Hidden thought.") for prompt in sampler.prompts]
    if thinking == "template" and template.strips_reasoning:
        assert shown == [0, 0, 0]
        assert record.branch_reasons == {"thinking_stripped": 2}
        assert list(sampler.prompts[2]) == list(template.first_prompt(messages[:5], None)), "the full rendering"
    else:
        assert shown == [0, 1, 2]
        assert record.branch_reasons == {}
        assert len(record.samples) == 1
    assert audit(record).clean
    assert audit(record).trained_tokens == sum(len(turn.sampled_ids) for turn in record.turns)


async def test_a_template_that_rewrites_what_was_said_starts_a_branch(tmp_path: Path) -> None:
    template = FAMILIES["mistral"](tmp_path)
    assert template.rewrites_history
    sampler = FamilySampler(FAMILIES["mistral"], template)
    async with serving(template, sampler) as proxy, proxy.open_rollout("r") as session:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Begin."}]
        for _ in range(3):
            completion = await session.complete(asked(messages))
            messages += [replay(completion), {"role": "user", "content": "Go on."}]
        assert await session.complete(asked(messages[:3])) is not completion, "a retry finds the branch's turn"
        record = await session.close()
    assert record.branch_reasons == {"template_rewrites": 2}
    assert len(record.turns) == 3
    assert audit(record).clean


class CountingSampler:
    """Counts how many calls are being sampled at most."""

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.busy = 0
        self.most = 0

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            return await self.inner.sample(prompt_ids, params, routing_key=routing_key)
        finally:
            self.busy -= 1


class StubbornSampler:
    """Gives its turn although it is cancelled."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        self.called.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return SampledTurn((5, 2), (-0.1, -0.1), 0, "stop", "")


class FamilySampler:
    """Says the same in a family's words, with thinking where the family thinks."""

    def __init__(self, family: Family, template: ChatTemplate) -> None:
        self.ids = family.sampled_ids(template, "So.", (), "Hidden thought." if family.thinks else "")
        self.prompts: list[Sequence[int]] = []

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        self.prompts.append(prompt_ids)
        return SampledTurn(tuple(self.ids), (-0.5,) * len(self.ids), 0, "stop", "")
