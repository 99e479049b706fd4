"""What Drydock's tools have in common: a fixed wire schema and an executor that runs on the event loop.

The SDK derives each tool's schema from its action model on every call, adds a risk and a summary parameter to it, and
runs executors in threads. Here the schema is written down once (short, because every rollout pays its tokens) and the
executor is a coroutine, so that cancelling the agent cancels the command.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from pydantic import PrivateAttr

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.sdk import Action, Observation, ToolDefinition, ToolExecutor
from drydock.harness.tool_schemas import schema_of


class DriverExecutor[ActionT: Action, ObservationT: Observation](ToolExecutor[ActionT, ObservationT]):
    """An executor that is awaited by LoopToolExecutor; calling it from a thread is a mistake."""

    @abstractmethod
    async def run(self, action: ActionT) -> ObservationT:
        """Carry out `action`."""

    def __call__(self, action: ActionT, conversation: Any = None) -> ObservationT:
        raise NotImplementedError(f"{type(self).__name__} runs on the event loop only")


class TextObservation(Observation):
    """What a tool says to the model."""


class TextExecutor[ActionT: Action](DriverExecutor[ActionT, TextObservation]):
    """An executor whose answer is a text; a ToolRefused becomes an answer that counts as an error."""

    @abstractmethod
    async def answer(self, action: ActionT) -> str:
        """Carry out `action`; raises ToolRefused."""

    async def run(self, action: ActionT) -> TextObservation:
        try:
            return TextObservation.from_text(await self.answer(action))
        except ToolRefused as refusal:
            return TextObservation.from_text(str(refusal) or "the call was refused", is_error=True)


class DriverTool[ActionT: Action, ObservationT: Observation](ToolDefinition[ActionT, ObservationT]):
    """A tool whose schema is given: by the key in `tool_schemas` that it was chosen by, or by whoever offers it."""

    _schema: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> Sequence[Self]:
        raise NotImplementedError("use drydock.harness.tools.build_tools, which binds a tool to its sandbox")

    @classmethod
    def of(
        cls,
        key: str,
        action_type: type[ActionT],
        observation_type: type[ObservationT],
        executor: DriverExecutor[ActionT, ObservationT],
    ) -> Self:
        """The tool that is chosen by `key`."""
        return cls.with_schema(schema_of(key), action_type, observation_type, executor)

    @classmethod
    def with_schema(
        cls,
        schema: dict[str, Any],
        action_type: type[ActionT],
        observation_type: type[ObservationT],
        executor: DriverExecutor[ActionT, ObservationT],
    ) -> Self:
        """The tool that the model sees as `schema` says."""
        tool = cls(
            description=schema["function"]["description"],
            action_type=action_type,
            observation_type=observation_type,
            executor=executor,
        )
        tool._schema = schema
        return tool

    def to_openai_tool(self, add_security_risk_prediction: bool = False, action_type: Any = None) -> Any:
        """The same object every time; callers do not change it."""
        return self._schema
