"""Requests to a chat proxy as a plain HTTP client makes them."""

import json
from typing import Any

import httpx

from drydock.proxy.session import RolloutSession

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "terminal",
            "description": "Run a command",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]
START: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "List the files."},
]


def call_text(command: str) -> str:
    """A tool call as the test template writes one."""
    arguments = json.dumps({"command": command}, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "terminal", "arguments": {arguments}}}\n</tool_call>'


async def post(
    session: RolloutSession,
    messages: list[dict[str, Any]],
    *,
    tools: Any = TOOLS,
    key: str | None = None,
    **fields: Any,
) -> httpx.Response:
    """One chat-completions request with the session's key, or another."""
    body = {"model": "policy", "messages": messages, "tools": tools, **fields}
    headers = {"Authorization": f"Bearer {session.api_key if key is None else key}"}
    async with httpx.AsyncClient(timeout=20, verify=False) as client:
        return await client.post(f"{session.base_url}/chat/completions", json=body, headers=headers)


def message_of(response: httpx.Response) -> dict[str, Any]:
    """The assistant message of a good answer."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def tool_result(message: dict[str, Any], text: str, call: int = 0) -> dict[str, Any]:
    """The tool message that answers a call of `message`."""
    return {"role": "tool", "tool_call_id": message["tool_calls"][call]["id"], "content": text}
