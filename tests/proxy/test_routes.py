import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from builders.completions import read_events
from builders.proxy_calls import START, TOOLS, call_text, message_of, post
from builders.scripted_sampler import ScriptedSampler, scripted

from drydock.errors import ServiceUnavailable
from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, RolloutSession, SampledTurn, audit
from drydock.proxy.dialects import ANTHROPIC
from drydock.wire.rest import SamplingParams

Opened = Callable[..., AbstractAsyncContextManager[tuple[RolloutSession, httpx.AsyncClient]]]
MESSAGES = {"model": "policy", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi."}]}
RESPONSES = {"model": "policy", "input": "Hi."}


@pytest.fixture
def opened(template: ChatTemplate) -> Opened:
    """A session, and a client with its key whose paths start behind the host."""

    @asynccontextmanager
    async def run(
        sampler: Any, keep_alive_every_s: float = 15.0, **settings: Any
    ) -> AsyncIterator[tuple[RolloutSession, httpx.AsyncClient]]:
        chosen = ProxySettings.model_validate({"context_tokens": 4000, "max_new_tokens": 400, **settings})
        proxy = ChatProxy(template, HermesParser(), sampler, chosen, keep_alive_every_s=keep_alive_every_s)
        async with proxy, proxy.open_rollout("r") as session:
            headers = {"authorization": f"Bearer {session.api_key}"}
            async with httpx.AsyncClient(base_url=proxy.root_url, headers=headers, timeout=20) as client:
                yield session, client

    return run


class FailingSampler:
    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        await asyncio.sleep(0.2)
        raise ServiceUnavailable("the service is gone")


async def test_a_stream_tells_the_recorded_turn_and_a_retry_without_stream_finds_it(
    template: ChatTemplate, opened: Opened
) -> None:
    sampler = scripted(template, [f"Look.\n{call_text('ls')}"])
    async with opened(sampler) as (session, client):
        body = {"messages": START, "tools": TOOLS, "stream": True}
        response = await client.post("/v1/chat/completions", json=body)
        assert response.headers["content-type"].startswith("text/event-stream")
        chunks = [data for _, data in read_events(response.content)][:-1]
        assert len(session.record.turns) == 1
        message = message_of(await post(session, START))
        whole = json.dumps([chunk["choices"][0]["delta"] for chunk in chunks])
        assert message["tool_calls"][0]["id"] in whole
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == message["content"]
    assert len(sampler.calls) == 1
    assert audit(session.record).clean


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        ("/v1/chat/completions", {"messages": START}, ""),
        ("/v1/messages", MESSAGES, "message_stop"),
        ("/v1/responses", RESPONSES, "response.completed"),
    ],
)
async def test_a_stream_that_waits_sends_comments(
    template: ChatTemplate, opened: Opened, path: str, body: dict[str, Any], last: str
) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "Done.", delay_s=0.3)
    async with opened(sampler, keep_alive_every_s=0.05) as (_, client):
        text = (await client.post(path, json={**body, "stream": True})).text
    assert text.startswith(": keep-alive\n\n: keep-alive\n\n")
    assert "Done." in text
    assert read_events(text.encode())[-1][0] == last


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        ("/v1/chat/completions", {"messages": START}, ""),
        ("/v1/messages", MESSAGES, "error"),
        ("/v1/responses", RESPONSES, "response.failed"),
    ],
)
async def test_a_failure_is_a_status_or_once_the_stream_has_begun_an_event(
    opened: Opened, path: str, body: dict[str, Any], last: str
) -> None:
    async with opened(FailingSampler(), keep_alive_every_s=0.05) as (_, client):
        late = await client.post(path, json={**body, "stream": True})
        assert late.status_code == 200
        assert read_events(late.content)[-1][0] == last
        assert "sampling failed for this rollout" in late.text
        early = await client.post(path, json={**body, "stream": True})
        assert (early.status_code, early.headers["x-should-retry"]) == (500, "false")
        assert "sampling failed for this rollout" in early.text


async def test_a_client_that_hangs_up_in_a_stream_finds_its_turn_again(template: ChatTemplate, opened: Opened) -> None:
    sampler = ScriptedSampler(template, lambda ids, text: "Done.", delay_s=0.4)
    async with opened(sampler, keep_alive_every_s=0.05) as (session, client):
        body = {"messages": START, "tools": TOOLS, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert await anext(response.aiter_text()) == ": keep-alive\n\n"
        assert message_of(await post(session, START))["content"] == "Done."
    assert len(sampler.calls) == 1


async def test_a_full_context_reaches_each_api_in_its_own_way(template: ChatTemplate, opened: Opened) -> None:
    async with opened(scripted(template, ["x"]), context_tokens=5) as (session, client):
        chat = await client.post("/v1/chat/completions", json={"messages": START, "stream": True})
        assert (chat.status_code, chat.json()["error"]["code"]) == (400, "context_length_exceeded")
        messages = await client.post("/v1/messages", json={**MESSAGES, "stream": True})
        assert (messages.status_code, messages.json()["type"]) == (400, "error")
        assert messages.json()["error"]["message"].startswith("prompt is too long")
        assert (await client.post("/v1/responses", json=RESPONSES)).status_code == 400
        streamed = await client.post("/v1/responses", json={**RESPONSES, "stream": True})
        assert streamed.status_code == 200
        assert read_events(streamed.content)[-1][1]["response"]["error"]["code"] == "context_length_exceeded"
    assert session.record.context_full


async def test_overridden_parameters_are_told_and_counted(template: ChatTemplate, opened: Opened) -> None:
    sampler = scripted(template, ["x"])
    async with opened(sampler, sampling={"temperature": 0.7}) as (session, client):
        body = {"messages": START, "temperature": 0, "top_p": 0.1}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.headers["x-drydock-overridden"] == "temperature, top_p"
        answer = await client.post("/v1/chat/completions", json={"messages": [*START, START[1]]})
        assert "x-drydock-overridden" not in answer.headers
    assert {params.temperature for _, params, _ in sampler.calls} == {0.7}
    assert session.record.overridden == {"temperature": 1, "top_p": 1}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"])
async def test_a_key_may_come_in_either_header_and_nothing_is_read_without_one(
    template: ChatTemplate, opened: Opened, path: str
) -> None:
    async with opened(scripted(template, ["x"])) as (session, client):
        body = {**(MESSAGES if "messages" in path else RESPONSES if "responses" in path else {"messages": START})}
        if path.endswith("count_tokens"):
            del body["max_tokens"]
        del client.headers["authorization"]
        assert (await client.post(path, json=body, headers={"x-api-key": session.api_key})).status_code == 200
        for headers in (
            {},
            {"x-api-key": "guess"},
            {"x-api-key": session.api_key[:-1]},
            {"x-api-key": f"{session.api_key}x"},
            {"authorization": f"Basic {session.api_key}"},
            {"authorization": f"Bearer {session.api_key.rsplit('-', 1)[0]}"},
        ):
            answer = await client.post(path, content=b"no JSON", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["message"] == "unknown API key"


async def test_tokens_are_counted_without_a_turn_or_a_branch(template: ChatTemplate, opened: Opened) -> None:
    async with opened(scripted(template, ["x"])) as (session, client):
        counted = await client.post("/v1/messages/count_tokens", json=MESSAGES)
        answer = await client.post("/v1/messages", json=MESSAGES)
        assert counted.json() == {"input_tokens": answer.json()["usage"]["input_tokens"]}
        refused = await client.post("/v1/messages/count_tokens", json={"messages": []})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert len(session.record.turns) == 1
    assert session.record.branch_reasons == {}


async def test_models_are_listed_for_either_api(template: ChatTemplate, opened: Opened) -> None:
    async with opened(scripted(template, ["x"])) as (_, client):
        models = (await client.get("/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["policy"]
        assert (models["object"], models["has_more"]) == ("list", False)
        assert (await client.get("/v1/models", headers={"authorization": ""})).status_code == 401


async def test_a_wrong_path_says_where_the_right_ones_are(template: ChatTemplate, opened: Opened) -> None:
    async with opened(scripted(template, ["x"])) as (_, client):
        for answer in (await client.post("/v1/v1/messages", json={}), await client.get("/v1/responses")):
            assert answer.status_code == 404
            assert "the base URL ends in /v1 for OpenAI's clients" in answer.json()["error"]["message"]


async def test_a_call_within_the_process_may_stream_and_may_speak_any_dialect(
    template: ChatTemplate, opened: Opened
) -> None:
    async with opened(scripted(template, ["Done."])) as (session, client):
        reply = await session.answer(json.dumps({**MESSAGES, "stream": True}).encode(), ANTHROPIC)
        over_http = await client.post("/v1/messages", json={**MESSAGES, "stream": True})
        assert (reply.status, reply.media_type, reply.body) == (200, "text/event-stream", over_http.content)
