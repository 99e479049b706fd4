"""The `terminal` tool: one shell command in the sandbox per call, in fresh shells or in a persistent one."""

from typing import ClassVar

from drydock.harness.sdk import Action, Observation
from drydock.harness.shell import Shell
from drydock.harness.tools.base import DriverExecutor, DriverTool


class SandboxCommandAction(Action):
    command: str


class SandboxCommandObservation(Observation):
    pass


class TerminalExecutor(DriverExecutor[SandboxCommandAction, SandboxCommandObservation]):
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def run(self, action: SandboxCommandAction) -> SandboxCommandObservation:
        text, is_error = await self._shell.run(action.command)
        return SandboxCommandObservation.from_text(text, is_error=is_error)


class SandboxTerminalTool(DriverTool[SandboxCommandAction, SandboxCommandObservation]):
    name: ClassVar[str] = "terminal"

    @classmethod
    def bound_to(cls, shell: Shell, key: str = "terminal") -> "SandboxTerminalTool":
        return cls.of(key, SandboxCommandAction, SandboxCommandObservation, TerminalExecutor(shell))
