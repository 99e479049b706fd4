"""The two transports put the same request to the endpoint and read the same from its replies."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drydock.harness import Connection
from drydock.harness.conversation import conversation_id
from drydock.harness.failures import PolicyCallFailed
from drydock.harness.llm import policy_llm
from drydock.harness.openhands import _failure
from drydock.harness.sdk import LLMContextWindowExceedError, Message
from drydock.harness.tools.finish import SubmitTool
from drydock.harness.transport import close_shared_client

REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "policy",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "é",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "finish", "arguments": '{"message":"x"}'}}
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


@contextlib.asynccontextmanager
async def endpoint(answer: Callable[[dict[str, Any]], Awaitable[Response]]) -> AsyncIterator[tuple[str, list[Any]]]:
    """A real HTTP server; yields its URL and the (headers, body) it gets."""
    seen: list[Any] = []

    async def chat(request: Request) -> Response:
        body = json.loads(await request.body())
        seen.append((dict(request.headers), body))
        return await answer(body)

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1", seen
    finally:
        await close_shared_client()
        server.should_exit = True
        await serving


class Context:
    prompt_cache_key = str(conversation_id("r1"))
    session_id = prompt_cache_key


def history() -> list[Message]:
    call = {"id": "c0", "name": "finish", "arguments": '{"message": "\\u00e9"}', "origin": "completion"}
    return [
        Message.model_validate({"role": "system", "content": "be brief"}),
        Message.model_validate({"role": "user", "content": "go é"}),
        Message.model_validate({"role": "assistant", "content": "", "tool_calls": [call]}),
        Message.model_validate({"role": "tool", "content": "done", "tool_call_id": "c0", "name": "finish"}),
    ]


async def send(url: str, transport: Any, timeout_s: float = 20.0):
    llm = policy_llm(Connection(url, "the-key"), transport=transport, call_timeout_s=timeout_s)
    return await llm.agenerate(
        messages=history(),
        tools=[SubmitTool.fresh()],
        add_security_risk_prediction=True,
        call_context=Context(),  # pyright: ignore[reportArgumentType]
    )


async def test_both_transports_send_the_same_request_and_read_the_same_reply():
    async def answer(_: dict[str, Any]) -> Response:
        return Response(json.dumps(REPLY), media_type="application/json")

    async with endpoint(answer) as (url, seen):
        direct = await send(url, "direct")
        litellm = await send(url, "litellm")
    (direct_headers, direct_body), (litellm_headers, litellm_body) = seen
    assert direct_body == litellm_body
    assert set(direct_body) == {"model", "messages", "tools", "prompt_cache_key"}
    assert direct_body["model"] == "policy"
    assert direct_body["messages"][0] == {"role": "system", "content": "be brief"}
    assert direct_headers["authorization"] == litellm_headers["authorization"] == "Bearer the-key"
    assert direct.message == litellm.message
    assert direct.id == litellm.id == "chatcmpl-1"


async def test_an_endpoint_in_this_process_gets_the_bytes_that_http_would_carry():
    async def answer(_: dict[str, Any]) -> Response:
        return Response(json.dumps(REPLY), media_type="application/json")

    bodies: list[bytes] = []

    async def answer_here(body: bytes) -> tuple[int, bytes]:
        bodies.append(body)
        return 200, json.dumps(REPLY).encode()

    async with endpoint(answer) as (url, seen):
        over_http = await send(url, "direct")
        llm = policy_llm(Connection(url, "the-key", answer_here), transport="direct", call_timeout_s=5)
        here = await llm.agenerate(messages=history(), tools=[SubmitTool.fresh()], call_context=Context())  # pyright: ignore[reportArgumentType]
    assert json.loads(bodies[0]) == seen[0][1]
    assert here.message == over_http.message


@pytest.mark.parametrize("transport", ["direct", "litellm"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
async def test_an_error_reply_is_a_failed_call_after_a_single_attempt(transport, status):
    async def answer(_: dict[str, Any]) -> Response:
        return Response(json.dumps({"error": {"message": "no such luck"}}), status_code=status)

    async with endpoint(answer) as (url, seen):
        with pytest.raises(Exception, match="no such luck") as raised:
            await send(url, transport)
    assert isinstance(_failure(raised.value), PolicyCallFailed)
    assert len(seen) == 1


@pytest.mark.parametrize("transport", ["direct", "litellm"])
async def test_a_full_context_is_recognised(transport):
    async def answer(_: dict[str, Any]) -> Response:
        body = {"error": {"message": "context length exceeded: 9 of 8", "code": "context_length_exceeded"}}
        return Response(json.dumps(body), status_code=400)

    async with endpoint(answer) as (url, _):
        with pytest.raises(LLMContextWindowExceedError):
            await send(url, transport)


@pytest.mark.parametrize("transport", ["direct", "litellm"])
async def test_a_reply_that_does_not_come_and_an_endpoint_that_is_not_there_are_failed_calls(transport):
    async def answer(_: dict[str, Any]) -> Response:
        await asyncio.sleep(1.5)
        return Response("{}")

    async with endpoint(answer) as (url, _):
        with pytest.raises(Exception) as late:  # noqa: PT011
            await send(url, transport, timeout_s=1.0)
    assert isinstance(_failure(late.value), PolicyCallFailed)
    with pytest.raises(Exception) as nobody:  # noqa: PT011
        await send("http://127.0.0.1:9/v1", transport)
    assert isinstance(_failure(nobody.value), PolicyCallFailed)
