"""A driver-side Harbor agent as a user writes one, and some that cannot be used."""

import base64
import json
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from drydock.harness import connection_for


class OwnAgent(BaseAgent):
    """Runs what the policy says as a command, once."""

    def __init__(self, *args: Any, rollout_id: str, greeting: str = "Which command?", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_id = rollout_id
        self.greeting = greeting

    @staticmethod
    def name() -> str:
        return "own"

    def version(self) -> str | None:
        return None

    async def setup(self, environment: BaseEnvironment) -> None:
        pass

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        messages = [{"role": "user", "content": f"{instruction}\n{self.greeting}"}]
        answer = connection_for(self.rollout_id).answer
        assert answer is not None
        status, body = await answer(json.dumps({"model": "policy", "messages": messages}).encode())
        assert status == 200, body
        await environment.exec(body_text(body))


class TellingAgent(OwnAgent):
    """Puts what the policy says into /tmp/reply, for a verifier that makes the reward of it."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        messages = [{"role": "user", "content": f"{instruction}\n{self.greeting}"}]
        answer = connection_for(self.rollout_id).answer
        assert answer is not None
        status, body = await answer(json.dumps({"model": "policy", "messages": messages}).encode())
        assert status == 200, body
        said = base64.b64encode(body_text(body).encode()).decode()
        await environment.exec(f"echo {said} | base64 -d > /tmp/reply")


def body_text(body: bytes) -> str:
    return json.loads(body)["choices"][0]["message"]["content"] or ""


class DeafAgent(OwnAgent):
    def __init__(self, logs_dir: Any, model_name: str | None = None) -> None:
        super().__init__(logs_dir, model_name, rollout_id="")


class NoAgent:
    pass
