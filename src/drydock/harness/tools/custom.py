"""A tool that a user wrote (`drydock.harness.custom_tool`) as a tool of the SDK."""

from typing import Any, ClassVar

from pydantic import PrivateAttr

from drydock.harness.custom_tool import CustomTool, custom_tool_class
from drydock.harness.observation import cut_middle
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.sdk import Action
from drydock.harness.tools.base import DriverTool, TextExecutor, TextObservation


class CustomCallAction(Action):
    """A call whose arguments the tool's own model has accepted."""

    accepted_arguments: dict[str, Any]


class CustomCallExecutor(TextExecutor[CustomCallAction]):
    def __init__(self, tool: CustomTool[Any]) -> None:
        self._tool = tool

    async def answer(self, action: CustomCallAction) -> str:
        arguments = self._tool.arguments_type.model_validate(action.accepted_arguments)
        return cut_middle(await self._tool.run(arguments), self._tool.sandbox.max_output_chars)


class CustomSdkTool(DriverTool[CustomCallAction, TextObservation]):
    name: ClassVar[Any] = property(lambda tool: tool._custom.name)
    _custom: CustomTool[Any] = PrivateAttr()

    @classmethod
    def bound_to(cls, key: str, sandbox: SandboxAccess) -> "CustomSdkTool":
        custom = custom_tool_class(key)(sandbox)
        tool = cls.of(key, CustomCallAction, TextObservation, CustomCallExecutor(custom))
        tool._custom = custom
        return tool

    def action_from_arguments(self, arguments: dict[str, Any]) -> CustomCallAction:
        """Raises ValidationError for arguments that the tool's model refuses; the SDK shows it to the model."""
        self._custom.arguments_type.model_validate(arguments)
        return CustomCallAction(accepted_arguments=arguments)
