"""What a transport of MCP does; one implementation a module beside this one."""

from collections.abc import Sequence
from typing import Protocol

from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.messages import Message


class McpTransport(Protocol):
    """The way to one server. One request is under way at a time.

    Every method may raise McpFailure (ServerGone when there is no use in going on) and SandboxCommandFailed.
    """

    protocol_version: str | None
    """Which version of the protocol is spoken, once that is agreed upon."""

    async def open(self, countdown: Countdown) -> None:
        """Prepare for the first request."""
        ...

    async def begin(self, messages: Sequence[Message], countdown: Countdown) -> list[Message]:
        """Send notifications and, as the last of `messages`, a request; return what came, which need not hold the
        answer yet."""
        ...

    async def go_on(self, answers: Sequence[Message], countdown: Countdown) -> list[Message]:
        """Send answers to what the server asked, and return what came since."""
        ...

    async def done(self) -> None:
        """The request has been answered, or is given up."""
        ...

    async def close(self) -> None:
        """End the server, or what belongs to it in the sandbox."""
        ...
