"""A chat-completions endpoint in this process that answers from a script, and the agent run against it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from drydock.harness import Connection, HarnessResult, offered
from drydock.harness.openhands import OpenHandsAgent

type Reply = str | dict[str, Any] | list[dict[str, Any]]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call of the policy."""
    return {"name": name, "arguments": json.dumps(arguments)}


class ScriptedEndpoint:
    """Gives `replies` one after the other, then the last one again; `bodies` are the requests as they came."""

    def __init__(self, replies: Sequence[Reply], *, tokens: int = 10) -> None:
        self.replies = replies
        self.tokens = tokens
        self.bodies: list[bytes] = []

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests, read."""
        return [json.loads(body) for body in self.bodies]

    @property
    def answers(self) -> list[str]:
        """What the tools said, as the last request shows it."""
        return [message["content"] for message in self.requests[-1]["messages"] if message["role"] == "tool"]

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        number = len(self.bodies)
        self.bodies.append(body)
        reply = self.replies[min(number, len(self.replies) - 1)]
        message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else ""}
        calls = [] if isinstance(reply, str) else reply if isinstance(reply, list) else [reply]
        if calls:
            message["tool_calls"] = [
                {"id": f"c{number}-{place}", "type": "function", "function": one} for place, one in enumerate(calls)
            ]
        choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": self.tokens, "total_tokens": self.tokens + 1}
        whole = {"id": f"r{number}", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]}
        return 200, json.dumps({**whole, "usage": usage}).encode()


async def run_agent(
    endpoint: ScriptedEndpoint,
    environment: BaseEnvironment,
    logs: Path,
    *,
    instruction: str = "Do it.",
    skills_dir: str | None = None,
    **settings: Any,
) -> HarnessResult:
    """Set the agent up and run it as Harbor does; raises what it raises."""
    agent = OpenHandsAgent(logs, rollout_id="r1", skills_dir=skills_dir, **settings)
    context = AgentContext()
    with offered("r1", Connection("http://127.0.0.1:9/v1", "key", endpoint.answer)):
        await agent.setup(environment)
        await agent.run(instruction, environment, context)
    result = HarnessResult.from_metadata(context.metadata)
    assert result is not None
    return result
