"""A server that is a program in the sandbox and speaks over its standard streams, a message a line."""

from collections.abc import Sequence

from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.hiding import Hiding
from drydock.harness.mcp.messages import Message, line_of, messages_in
from drydock.harness.mcp.program import SandboxProgram, written_line
from drydock.harness.sandbox_access import SandboxAccess


class StdioTransport:
    """See McpTransport. The program runs as the agent's user in the task's working directory."""

    def __init__(self, sandbox: SandboxAccess, command: Sequence[str], hide: Hiding) -> None:
        self.protocol_version: str | None = None
        self._program = SandboxProgram(sandbox, command, hide=hide)

    async def open(self, countdown: Countdown) -> None:
        """Nothing: the first message starts the program."""

    async def begin(self, messages: Sequence[Message], countdown: Countdown) -> list[Message]:
        return await self.go_on(messages, countdown)

    async def go_on(self, answers: Sequence[Message], countdown: Countdown) -> list[Message]:
        home = self._program.home
        send = "\n".join(written_line(home, line_of(answer)) for answer in answers) or ":"
        return messages_in(await self._program.exchange(send, countdown))

    async def done(self) -> None:
        """Nothing: an answer that comes late is left out when it is read."""

    async def close(self) -> None:
        await self._program.stop()
