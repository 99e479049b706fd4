"""A rollout whose calls go on to an endpoint: settings that win, turns told apart, failures, secrets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from builders.endpoint_server import EndpointServer, endpoint_server
from builders.scripted_endpoint import call
from pydantic import SecretStr

from drydock.errors import ServiceError, UserError
from drydock.proxy.endpoint import EndpointAddress, EndpointClient, EndpointRelay
from drydock.proxy.endpoint.session import EndpointSession
from drydock.proxy.settings import ProxySettings
from drydock.wire.rest import SamplingParams

KEY = "sk-secret"
SETTINGS = ProxySettings(
    sampling=SamplingParams(temperature=0.5, top_p=0.9, seed=7), context_tokens=100, max_new_tokens=20
)
TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}]
USER = {"role": "user", "content": "Do it."}


@asynccontextmanager
async def opened(server: EndpointServer, settings: ProxySettings = SETTINGS) -> AsyncIterator[EndpointSession]:
    """A rollout at a relay to `server`, which runs."""
    address = EndpointAddress(server.base_url, "m", SecretStr(KEY))
    async with EndpointClient(address, first_pause_s=0.01) as client, EndpointRelay(client, settings) as relay:
        session = relay.open_rollout("r1")
        yield session
        await session.close()


async def ask(session: EndpointSession, *messages: dict[str, Any], **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "policy", "messages": list(messages), "tools": TOOLS, **fields}
    reply = await session.answer(json.dumps(body).encode())
    return reply.status, json.loads(reply.body)


async def test_the_runs_sampling_wins_and_the_agent_may_only_ask_for_less() -> None:
    with endpoint_server(EndpointServer(["hello"], key=KEY)) as server:
        async with opened(server) as session:
            status, answer = await ask(session, USER, temperature=2, top_p=0.1, max_tokens=5)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "hello"
    (sent,) = server.seen
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["max_tokens"]) == ("m", 0.5, 0.9, 5)
    assert sent["tools"] == TOOLS
    assert session.record.overridden == {"temperature": 1, "top_p": 1}


async def test_a_model_that_wants_the_new_name_of_the_length_limit_gets_it_from_then_on() -> None:
    refusal = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    failures = [(400, json.dumps({"error": {"message": refusal, "param": "max_tokens"}}))]
    with endpoint_server(EndpointServer(["hello"], key=KEY, failures=failures)) as server:
        async with opened(server) as session:
            for text in ("one", "two"):
                status, _ = await ask(session, {"role": "user", "content": text}, max_tokens=5)
                assert status == 200
    assert [("max_tokens" in body, body["max_completion_tokens"]) for body in server.seen] == [(False, 5), (False, 5)]
    assert session.record.sampler_error is None


async def test_a_model_that_takes_neither_name_keeps_the_old_one() -> None:
    failures = [(400, "max_tokens: use max_completion_tokens"), (400, "max_completion_tokens: not known here")]
    server = EndpointServer(["hello"], key=KEY, failures=failures)
    with endpoint_server(server):
        address = EndpointAddress(server.base_url, "m", SecretStr(KEY))
        async with EndpointClient(address, first_pause_s=0.01) as client:
            with pytest.raises(ServiceError, match="use max_completion_tokens"):
                await client.ask({"model": "m", "messages": [USER], "max_tokens": 5})
            await client.ask({"model": "m", "messages": [USER], "max_tokens": 5})
    assert [body.get("max_tokens") for body in server.seen] == [5]


async def test_a_full_context_is_none_of_the_names_fault() -> None:
    full = "'max_tokens' or 'max_completion_tokens' is too large: 20. This model's maximum context length is 100 tokens"
    failures = [(400, full)]
    with endpoint_server(EndpointServer(["hello"], key=KEY, failures=failures)) as server:
        async with opened(server) as session:
            status, answer = await ask(session, USER)
            assert (status, answer["error"]["code"], server.seen) == (400, "context_length_exceeded", [])
            assert session.record.context_full


async def test_a_conversation_is_one_branch_also_when_the_agent_writes_its_calls_anew() -> None:
    replies = [call("terminal", command="ls", timeout=1), "done"]
    with endpoint_server(EndpointServer(replies, key=KEY)) as server:
        async with opened(server) as session:
            _, first = await ask(session, USER)
            said = first["choices"][0]["message"]
            said["tool_calls"][0]["function"]["arguments"] = '{ "timeout":1,"command":"ls" }'
            result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "a b"}
            await ask(session, USER, said, result)
            await ask(session, {"role": "user", "content": "Sum it up."})
    turns = session.record.turns
    assert [(turn.parent, turn.branch, turn.reason) for turn in turns] == [
        (None, 0, None),
        (0, 0, None),
        (None, 1, "new_conversation"),
    ]
    assert [message["role"] for message in turns[1].given] == ["tool"]
    assert session.record.samples == []
    assert session.record.endpoint is not None
    assert session.record.endpoint.completion_tokens == [10, 10, 10]
    assert session.record.sampled_tokens == 30


async def test_the_same_call_again_gets_the_same_turn() -> None:
    with endpoint_server(EndpointServer(["hello"], key=KEY)) as server:
        async with opened(server) as session:
            assert await ask(session, USER) == await ask(session, USER)
    assert len(server.seen) == len(session.record.turns) == 1


async def test_an_overloaded_endpoint_is_asked_again() -> None:
    failures = [(429, "slow down"), (503, "busy")]
    with endpoint_server(EndpointServer(["hello"], key=KEY, failures=failures)) as server:
        async with opened(server) as session:
            status, _ = await ask(session, USER)
    assert (status, len(session.record.turns), session.record.sampler_error) == (200, 1, None)


async def test_a_refusal_spoils_the_rollout_and_never_shows_the_key() -> None:
    failures = [(404, f"no model m for {KEY}")]
    with endpoint_server(EndpointServer(["hello"], key=KEY, failures=failures)) as server:
        async with opened(server) as session:
            status, answer = await ask(session, USER)
            again, _ = await ask(session, {"role": "user", "content": "Again."})
    assert (status, again, server.seen) == (500, 500, [])
    assert answer["error"]["code"] == "sampler_error"
    assert "answered HTTP 404: no model m for ***" in (session.record.sampler_error or "")


async def test_a_full_context_is_told_as_the_proxy_tells_it() -> None:
    said = json.dumps({"error": {"code": "context_length_exceeded", "message": "too long"}})
    with endpoint_server(EndpointServer(["hello"], key=KEY, failures=[(400, said)])) as server:
        async with opened(server) as session:
            status, answer = await ask(session, USER)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert session.record.context_full
    assert session.record.sampler_error is None


async def test_the_runs_own_context_ends_a_history_by_the_endpoints_count() -> None:
    tight = SETTINGS.model_copy(update={"context_tokens": 11})  # the scripted turn counts 1 + 10
    with endpoint_server(EndpointServer(["hello"], key=KEY)) as server:
        async with opened(server, tight) as session:
            _, first = await ask(session, USER)
            status, answer = await ask(session, USER, first["choices"][0]["message"], USER)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert session.record.context_full


async def test_an_agent_reaches_the_relay_over_http_with_its_own_key_only() -> None:
    with endpoint_server(EndpointServer(["hello"], key=KEY)) as server:
        async with opened(server) as session, httpx.AsyncClient() as agent:
            url, body = f"{session.base_url}/chat/completions", {"model": "policy", "messages": [USER]}
            mine = await agent.post(url, json=body, headers={"authorization": f"Bearer {session.api_key}"})
            theirs = await agent.post(url, json=body, headers={"authorization": f"Bearer {KEY}"})
            await session.close()
            late = await agent.post(url, json=body, headers={"authorization": f"Bearer {session.api_key}"})
    assert (mine.status_code, theirs.status_code, late.status_code) == (200, 401, 403)


async def test_what_is_no_chat_completion_spoils_the_rollout() -> None:
    with endpoint_server(EndpointServer(["hello"], key=KEY, failures=[(200, "<html>")])) as server:
        async with opened(server) as session:
            status, _ = await ask(session, USER)
    assert status == 500
    assert "is no chat completion" in (session.record.sampler_error or "")


async def test_the_check_names_a_model_that_is_not_there_and_a_host_that_is_not() -> None:
    with endpoint_server(EndpointServer(["hello"], models=["other"])) as server:
        async with EndpointClient(EndpointAddress(server.base_url, "m")) as client:
            assert "does not list the model 'm'" in (await client.check() or "")
    async with EndpointClient(EndpointAddress(server.base_url, "m")) as client:
        with pytest.raises(UserError, match="cannot be reached"):
            await client.check()
