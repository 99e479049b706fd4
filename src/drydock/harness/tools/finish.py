"""The `finish` tool: the agent declares the task done.

The SDK ends a conversation at a call of a tool with exactly this name and drops the calls after it.
"""

from typing import ClassVar

from drydock.harness.sdk import Action
from drydock.harness.tools.base import DriverTool, TextExecutor, TextObservation


class SubmitAction(Action):
    message: str = ""


class SubmitExecutor(TextExecutor[SubmitAction]):
    async def answer(self, action: SubmitAction) -> str:
        return action.message


class SubmitTool(DriverTool[SubmitAction, TextObservation]):
    name: ClassVar[str] = "finish"

    @classmethod
    def fresh(cls) -> "SubmitTool":
        return cls.of(cls.name, SubmitAction, TextObservation, SubmitExecutor())
