"""The `finish` tool: the agent declares the task done.

The SDK ends a conversation at a call of a tool with exactly this name and drops the calls after it.
"""

from typing import ClassVar

from drydock.harness.sdk import Action, Observation
from drydock.harness.tools.base import DriverExecutor, DriverTool, description_of


class SubmitAction(Action):
    message: str = ""


class SubmitObservation(Observation):
    pass


class SubmitExecutor(DriverExecutor[SubmitAction, SubmitObservation]):
    async def run(self, action: SubmitAction) -> SubmitObservation:
        return SubmitObservation.from_text(action.message)


class SubmitTool(DriverTool[SubmitAction, SubmitObservation]):
    name: ClassVar[str] = "finish"

    @classmethod
    def fresh(cls) -> "SubmitTool":
        return cls(
            description=description_of(cls.name),
            action_type=SubmitAction,
            observation_type=SubmitObservation,
            executor=SubmitExecutor(),
        )
