"""The `think` tool: a thought written down; nothing happens."""

from typing import ClassVar

from drydock.harness.sdk import Action
from drydock.harness.tools.base import DriverTool, TextExecutor, TextObservation


class ThinkAloudAction(Action):
    thought: str


class ThinkAloudExecutor(TextExecutor[ThinkAloudAction]):
    async def answer(self, action: ThinkAloudAction) -> str:
        return "[noted]"


class ThinkAloudTool(DriverTool[ThinkAloudAction, TextObservation]):
    name: ClassVar[str] = "think"

    @classmethod
    def fresh(cls) -> "ThinkAloudTool":
        return cls.of(cls.name, ThinkAloudAction, TextObservation, ThinkAloudExecutor())
