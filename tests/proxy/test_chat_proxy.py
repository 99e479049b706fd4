import asyncio
import json
import time
from pathlib import Path

import pytest
from builders.proxy_calls import START, TOOLS, call_text, message_of, post, tool_result
from builders.running_proxy import Running
from builders.scripted_sampler import ScriptedSampler, scripted

from drydock.errors import ProxyError
from drydock.proxy import ChatTemplate, LoggedTurn, RolloutRecord, audit
from drydock.proxy.request_body import MAX_BODY_BYTES
from drydock.wire.rest import SamplingParams


async def test_a_rollout_is_recorded_turn_by_turn_and_audits_clean(
    template: ChatTemplate, running: Running, tmp_path: Path
) -> None:
    sampler = scripted(template, [f"Look.\n{call_text('ls')}", call_text("cat a"), "All done."])
    log = tmp_path / "deep" / "r1.jsonl"
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r1", record_path=log)
        messages = list(START)
        finishes = []
        for count in range(1, 4):
            response = await post(session, messages)
            message = message_of(response)
            assert len(log.read_text().splitlines()) == count, "written before the reply"
            finishes.append(response.json()["choices"][0]["finish_reason"])
            usage = response.json()["usage"]
            assert usage["prompt_tokens"] == len(sampler.calls[-1][0])
            assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
            messages.append(message)
            messages += [tool_result(message, "out")] if "tool_calls" in message else []
        record = await session.close()
        assert await session.close() is record
    assert finishes == ["tool_calls", "tool_calls", "stop"]
    assert (messages[2]["content"], messages[4]["content"], messages[6]["content"]) == ("Look.", None, "All done.")
    ids = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    assert len(ids) == 2
    assert [turn.parent for turn in record.turns] == [None, 0, 1]
    assert record.branch_reasons == {}
    assert len(record.samples) == 1
    result = audit(record)
    assert result.clean
    assert result.trained_tokens == sum(len(turn.sampled_ids) for turn in record.turns)
    assert record.messages[1] == START[1]
    assert record.messages[-1] == {"role": "assistant", "content": "All done."}
    assert record.messages[4]["tool_calls"] == messages[4]["tool_calls"]
    assert RolloutRecord.model_validate_json(record.model_dump_json()) == record
    logged = [LoggedTurn.model_validate_json(line) for line in log.read_text().splitlines()]
    replayed = [token for turn in logged for token in (*turn.added_ids, *turn.sampled_ids)]
    assert replayed == record.samples[0].token_ids
    assert {key for _, _, key in sampler.calls} == {"r1"}


async def test_the_runs_sampling_wins_and_the_agent_may_only_ask_for_fewer_tokens(
    template: ChatTemplate, running: Running
) -> None:
    sampler = scripted(template, ["ok"])
    sampling = SamplingParams(temperature=0.7, top_p=0.9, seed=5, stop_token_ids=[0])
    async with running(sampler, sampling=sampling, max_new_tokens=50) as proxy:
        session = proxy.open_rollout("r")
        agent = {"temperature": 0.0, "top_p": 0.1, "seed": 1}
        for number, limits in enumerate([{}, {"max_tokens": 9}, {"max_completion_tokens": 1000}]):
            user = {"role": "user", "content": str(number)}
            message_of(await post(session, [START[0], user], **agent, **limits))
    params = [params for _, params, _ in sampler.calls]
    assert [param.max_tokens for param in params] == [50, 9, 50]
    assert {(param.temperature, param.top_p, param.logprobs) for param in params} == {(0.7, 0.9, 0)}
    assert {tuple(param.stop_token_ids) for param in params} == {(0, 2)}
    assert len({param.seed for param in params}) == 3, "each turn has a seed of its own"


async def test_max_tokens_is_capped_to_the_context_and_overflow_is_named(
    template: ChatTemplate, running: Running
) -> None:
    sampler = scripted(template, ["a long answer " * 30])
    prompt_tokens = len(template.first_prompt(START, TOOLS))
    async with running(sampler, context_tokens=prompt_tokens + 7) as proxy:
        session = proxy.open_rollout("r")
        response = await post(session, START)
        message = message_of(response)
        assert response.json()["choices"][0]["finish_reason"] == "length"
        assert response.json()["usage"]["completion_tokens"] == 7
        assert not session.record.context_full
        for _ in range(2):
            response = await post(session, [*START, message, {"role": "user", "content": "more"}])
            error = response.json()["error"]
            assert response.status_code == 400
            assert "context length exceeded" in error["message"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
        record = await session.close()
    assert record.context_full
    assert len(record.turns) == 1
    assert not record.branch_reasons
    assert len(sampler.calls) == 1


async def test_a_repeated_request_is_answered_from_the_record_also_while_it_is_sampled(
    template: ChatTemplate, running: Running
) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: call_text("ls"), delay_s=0.2)
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r")
        together = await asyncio.gather(post(session, START), post(session, START))
        later = await post(session, START)
    assert len({response.text for response in [*together, later]}) == 1
    assert len(sampler.calls) == 1


async def test_a_client_that_gives_up_and_asks_again_gets_the_first_turn(
    template: ChatTemplate, running: Running
) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "done", delay_s=0.4)
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(post(session, START), 0.2)
        assert message_of(await post(session, START))["content"] == "done"
    assert len(sampler.calls) == 1


async def test_parallel_calls_of_one_rollout_become_branches_that_audit_clean(
    template: ChatTemplate, running: Running
) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: text[-60:-50] or "x", delay_s=0.05)
    async with running(sampler) as proxy:
        async with proxy.open_rollout("r") as session:
            tasks = [[START[0], {"role": "user", "content": f"task {n}"}] for n in range(12)]
            answers = await asyncio.gather(*(post(session, messages) for messages in tasks))
            more = {"role": "user", "content": "again"}
            await asyncio.gather(
                *(post(session, [*task, message_of(a), more]) for task, a in zip(tasks, answers, strict=True))
            )
        record = await session.close()
    assert len(record.turns) == 24
    assert len(record.samples) == 12
    assert record.branch_reasons == {"new_conversation": 11}
    assert audit(record).clean


async def test_closing_ends_waiting_calls_and_late_calls_are_counted(template: ChatTemplate, running: Running) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "never", delay_s=60)
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r")
        waiting = asyncio.create_task(post(session, START))
        await sampler.called.wait()
        started = time.monotonic()
        record = await session.close()
        assert (await waiting).status_code == 403
        assert time.monotonic() - started < 2
        assert record.late_calls == 0
        assert record.sampler_error is None
        assert record.turns == []
        for _ in range(2):
            response = await post(session, START)
            assert (response.status_code, response.json()["error"]["code"]) == (403, "revoked")
        assert record.late_calls == 2
        assert (await post(session, START, key="guess")).status_code == 401
    assert len(sampler.calls) == 1


async def test_leaving_the_proxy_closes_what_is_open(template: ChatTemplate, running: Running) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "never", delay_s=60)
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r")
        waiting = asyncio.create_task(post(session, START))
        await sampler.called.wait()
    assert (await waiting).status_code == 403
    with pytest.raises(ProxyError, match="not running"):
        proxy.open_rollout("s")


async def test_a_call_within_the_process_is_the_same_call(template: ChatTemplate, running: Running) -> None:
    sampler = scripted(template, [call_text("ls")])
    async with running(sampler) as proxy:
        session = proxy.open_rollout("r")
        reply = await session.answer(json.dumps({"model": "policy", "messages": START, "tools": TOOLS}).encode())
        assert reply.body == (await post(session, START)).content
        assert (await session.answer(b"{")).status == 400
        assert (await session.answer(b" " * (MAX_BODY_BYTES + 1))).status == 413
        await session.close()
        assert (await session.answer(json.dumps({"messages": START}).encode())).status == 403
        assert session.record.late_calls == 1
    assert len(sampler.calls) == 1


async def test_replies_on_a_kept_connection_do_not_wait_for_delayed_acknowledgements(
    template: ChatTemplate, running: Running
) -> None:
    async with running(scripted(template, ["ok"])) as proxy, proxy.open_rollout("r") as session:
        body = json.dumps({"messages": START}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {session.api_key}\r\n"
        request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
        port = int(proxy.base_url.rsplit(":", 1)[1].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        seconds = []
        for _ in range(8):
            started = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            seconds.append(time.perf_counter() - started)
        writer.close()
    assert min(seconds) < 0.03
