"""What Drydock's tools have in common: a fixed wire schema and an executor that runs on the event loop.

The SDK derives each tool's schema from its action model on every call, adds a risk and a summary parameter to it, and
runs executors in threads. Here the schema is written down once (short, because every rollout pays its tokens) and the
executor is a coroutine, so that cancelling the agent cancels the command.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from drydock.harness.sdk import Action, Observation, ToolDefinition, ToolExecutor
from drydock.harness.tool_schemas import SCHEMAS


class DriverExecutor[ActionT: Action, ObservationT: Observation](ToolExecutor[ActionT, ObservationT]):
    """An executor that is awaited by LoopToolExecutor; calling it from a thread is a mistake."""

    @abstractmethod
    async def run(self, action: ActionT) -> ObservationT:
        """Carry out `action`."""

    def __call__(self, action: ActionT, conversation: Any = None) -> ObservationT:
        raise NotImplementedError(f"{type(self).__name__} runs on the event loop only")


class DriverTool[ActionT: Action, ObservationT: Observation](ToolDefinition[ActionT, ObservationT]):
    """A tool whose schema is the entry of its name in `tool_schemas.SCHEMAS`."""

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> Sequence[Self]:
        raise NotImplementedError("use drydock.harness.tools.build_tools, which binds a tool to its sandbox")

    def to_openai_tool(self, add_security_risk_prediction: bool = False, action_type: Any = None) -> Any:
        """The same object every time; callers do not change it."""
        return SCHEMAS[self.name]


def description_of(name: str) -> str:
    """The description in the schema of tool `name`."""
    return SCHEMAS[name]["function"]["description"]
