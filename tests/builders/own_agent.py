"""A driver-side Harbor agent as a user writes one, and some that cannot be used."""

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
        await environment.exec(json.loads(body)["choices"][0]["message"]["content"])


class DeafAgent(OwnAgent):
    def __init__(self, logs_dir: Any, model_name: str | None = None) -> None:
        super().__init__(logs_dir, model_name, rollout_id="")


class NoAgent:
    pass
