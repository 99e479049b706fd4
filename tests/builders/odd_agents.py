"""Agents of a user's own, `module:Class`, that do not end as the default agent does; they call no model."""

import asyncio
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class ScriptAgent(BaseAgent):
    """Runs one command in the sandbox and ends without a report; `crash` raises after it, `slow_setup_s` waits."""

    def __init__(
        self,
        *args: Any,
        rollout_id: str,
        command: str = "true",
        crash: str = "",
        slow_setup_s: float = 0,
        **kwargs: Any,
    ) -> None:
        self._command, self._crash, self._slow_setup_s = command, crash, slow_setup_s
        super().__init__(*args, **kwargs)

    @staticmethod
    def name() -> str:
        return "script"

    def version(self) -> str | None:
        return None

    async def setup(self, environment: BaseEnvironment) -> None:
        await asyncio.sleep(self._slow_setup_s)

    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        pass

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await environment.exec(self._command)
        if self._crash:
            raise LookupError(self._crash)
