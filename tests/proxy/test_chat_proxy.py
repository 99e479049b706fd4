import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from builders.chat_template import HERMES_CHATML
from builders.proxy_calls import START, TOOLS, call_text, message_of, post, tool_result
from builders.scripted_sampler import ScriptedSampler, scripted
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.errors import ProxyError, ServiceUnavailable
from drydock.proxy import (
    ChatProxy,
    ChatTemplate,
    HermesParser,
    LoggedTurn,
    ProxySettings,
    RolloutRecord,
    SampledTurn,
    Sampler,
    audit,
)
from drydock.proxy.request_body import MAX_BODY_BYTES
from drydock.wire.rest import SamplingParams

Running = Callable[..., AbstractAsyncContextManager[ChatProxy]]


@pytest.fixture
def running(template: ChatTemplate) -> Running:
    @asynccontextmanager
    async def run(sampler: Sampler, **settings: object) -> AsyncIterator[ChatProxy]:
        chosen = {"context_tokens": 4000, "max_new_tokens": 400, **settings}
        async with ChatProxy(template, HermesParser(), sampler, ProxySettings.model_validate(chosen)) as proxy:
            yield proxy

    return run


class FailingSampler:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.count = 0

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        self.count += 1
        raise self.error


class FixedSampler:
    def __init__(self, turn: SampledTurn) -> None:
        self.turn = turn

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        return self.turn


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


async def test_a_conversation_that_the_template_refuses_is_a_bad_request(tmp_path: Path) -> None:
    source = HERMES_CHATML + "{% if messages[-1].content == 'bad' %}{{ raise_exception('not this') }}{% endif %}"
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path, source))
    settings = ProxySettings(context_tokens=4000, max_new_tokens=10)
    async with ChatProxy(template, HermesParser(), scripted(template, ["ok"]), settings) as proxy:
        session = proxy.open_rollout("r")
        response = await post(session, [{"role": "user", "content": "bad"}])
        assert response.status_code == 400
        assert "not this" in response.json()["error"]["message"]
        assert message_of(await post(session, START))["content"] == "ok"
        assert (await session.close()).branch_reasons == {}


async def test_rollouts_see_only_themselves(template: ChatTemplate, running: Running) -> None:
    async with running(scripted(template, [call_text("ls")])) as proxy:
        one, two = proxy.open_rollout("one"), proxy.open_rollout("two")
        with pytest.raises(ProxyError, match="'one' is already open"):
            proxy.open_rollout("one")
        first, second = message_of(await post(one, START)), message_of(await post(two, START))
        assert first["tool_calls"][0]["id"] != second["tool_calls"][0]["id"]
        assert len((await one.close()).turns) == len((await two.close()).turns) == 1
        assert proxy.open_rollout("one").api_key != one.api_key


async def test_keys_are_nowhere(
    template: ChatTemplate, running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(FailingSampler(ValueError("x")), turn_log=tmp_path) as proxy:
        failed = proxy.open_rollout("failed")
        await post(failed, START)
        await post(failed, START, key=failed.api_key + "x")
        record = await failed.close()
        await post(failed, START)
    async with running(scripted(template, ["ok"]), turn_log=tmp_path) as proxy:
        good = proxy.open_rollout("group/good")
        await post(good, START)
        record_good = await good.close()
    shown = caplog.text + repr(failed) + repr(good) + record.model_dump_json() + record_good.model_dump_json()
    shown += (tmp_path / "group_good.jsonl").read_text()
    assert "rollout failed: call after its end" in shown
    for key in (failed.api_key, good.api_key):
        assert len(key) >= 32
        assert key not in shown


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": "yes"}, "stream"),
        ({"n": 2}, "n"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": ["\n"]}, "stop"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": {"a": 1}}, "tools"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"messages": [{"role": "oracle", "content": ""}]}, "messages"),
        ({"messages": [{"role": ["user"], "content": ""}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(
    template: ChatTemplate, running: Running, fields: dict[str, object], param: str
) -> None:
    sampler = scripted(template, ["ok"])
    async with running(sampler) as proxy, proxy.open_rollout("r") as session:
        body = {"model": "m", "messages": START, **fields}
        headers = {"Authorization": f"Bearer {session.api_key}"}
        async with httpx.AsyncClient(verify=False) as client:
            response = await client.post(f"{session.base_url}/chat/completions", json=body, headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
        assert param in response.json()["error"]["message"]
    assert not sampler.calls


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 200_000])
async def test_a_body_that_is_not_a_request_is_refused(template: ChatTemplate, running: Running, body: bytes) -> None:
    async with running(scripted(template, ["ok"])) as proxy, proxy.open_rollout("r") as session:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {session.api_key}"}, verify=False) as client:
            response = await client.post(f"{session.base_url}/chat/completions", content=body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


async def test_a_body_over_the_limit_is_refused_declared_or_not(template: ChatTemplate, running: Running) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            yield b" " * 2**20

    async with running(scripted(template, ["ok"])) as proxy, proxy.open_rollout("r") as session:
        headers = {"Authorization": f"Bearer {session.api_key}"}
        async with httpx.AsyncClient(headers=headers, timeout=20, verify=False) as client:
            url = f"{session.base_url}/chat/completions"
            assert (await client.post(url, content=b" " * (MAX_BODY_BYTES + 1))).status_code == 413
            assert (await client.post(url, content=pieces())).status_code == 413
            assert (await client.post(url, json={"messages": START})).status_code == 200


async def test_content_parts_developer_role_and_odd_unicode_are_understood(
    template: ChatTemplate, running: Running
) -> None:
    sampler = scripted(template, ["ok"])
    async with running(sampler) as proxy, proxy.open_rollout("r") as session:
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        odd = "\ud800 end"
        messages = [{"role": "developer", "content": odd}, {"role": "user", "content": parts}]
        tools = [{"type": "function", "function": {"name": odd}}]
        body = json.dumps({"messages": messages, "tools": tools})  # escaped: UTF-8 cannot hold a lone surrogate
        headers = {"Authorization": f"Bearer {session.api_key}"}
        async with httpx.AsyncClient(headers=headers, verify=False) as client:
            response = await client.post(f"{session.base_url}/chat/completions", content=body)
        assert message_of(response)["content"] == "ok"
        text = template.decode(sampler.calls[0][0])
        assert "one\ntwo<|im_end|>" in text
        assert "\ufffd end" in text


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
