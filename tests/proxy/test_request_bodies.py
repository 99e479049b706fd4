"""What the body of a chat-completions call may hold, and what is refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from builders.chat_template import HERMES_CHATML
from builders.proxy_calls import START, message_of, post
from builders.running_proxy import Running
from builders.scripted_sampler import scripted
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings
from drydock.proxy.request_body import MAX_BODY_BYTES


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
