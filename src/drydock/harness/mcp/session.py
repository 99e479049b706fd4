"""The client's side of the Model Context Protocol: the handshake, the list of tools, calls.

Of the protocol only what an agent needs: prompts, resources, sampling and elicitation are not offered to the server,
and what it asks all the same is answered with an error, so that it does not wait. Progress and log messages are left
out. Specification: modelcontextprotocol.io, version 2025-06-18; another one is spoken where the server wants it
(`PROTOCOL_VERSIONS`).
"""

from importlib.metadata import version
from typing import Any

from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.failures import NoAnswer, RequestRefused, ServerGone
from drydock.harness.mcp.messages import Message, answer_to, line_of, notification, request
from drydock.harness.mcp.program import MAX_SENT_BYTES
from drydock.harness.mcp.transport import McpTransport

PROTOCOL_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05", "2025-11-25")
"""Those that the client speaks; the first is asked for."""

MAX_TOOLS = 256
"""Of one server."""

MAX_ASKED = 64
"""What a server may ask of the client at once."""


class McpSession:
    """One server, talked to by one request at a time.

    Requests raise McpFailure and SandboxCommandFailed; after ServerGone every further one raises it again.
    """

    def __init__(self, transport: McpTransport) -> None:
        self._transport = transport
        self._number = 0
        self._notes: list[Message] = []
        self._gone: str | None = None

    async def open(self, limit_s: float) -> list[dict[str, Any]]:
        """Start the server and shake hands; return its tools as it describes them, all pages of them, in its order."""
        countdown = Countdown(limit_s)
        await self._transport.open(countdown)
        client = {"name": "drydock", "version": version("drydock-rl")}
        hello = {"protocolVersion": PROTOCOL_VERSIONS[0], "capabilities": {}, "clientInfo": client}
        welcome = await self._ask("initialize", hello, countdown)
        spoken = welcome.get("protocolVersion")
        if spoken not in PROTOCOL_VERSIONS:
            raise ServerGone(f"it speaks version '{spoken}' of the protocol, not one of {', '.join(PROTOCOL_VERSIONS)}")
        self._transport.protocol_version = spoken
        self._notes.append(notification("notifications/initialized"))
        return await self._tools(countdown)

    async def call(self, tool: str, arguments: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Call a tool by the server's name for it; return the result."""
        return await self._ask("tools/call", {"name": tool, "arguments": arguments}, Countdown(limit_s))

    async def close(self) -> None:
        """End the server. Raises what commands in the sandbox raise."""
        await self._transport.close()

    async def _tools(self, countdown: Countdown) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = []
        cursors: list[Any] = [None]
        while True:
            cursor = cursors[-1]
            page = await self._ask("tools/list", {"cursor": cursor} if cursor is not None else {}, countdown)
            listed = page.get("tools")
            if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
                raise ServerGone("its list of tools is none")
            tools += listed
            if len(tools) > MAX_TOOLS:
                raise ServerGone(f"it lists more than {MAX_TOOLS} tools")
            cursor = page.get("nextCursor")
            if cursor is None:
                return tools
            if cursor in cursors or len(cursors) > MAX_TOOLS:
                raise ServerGone("its list of tools has no end")
            cursors.append(cursor)

    async def _ask(self, method: str, params: dict[str, Any], countdown: Countdown) -> dict[str, Any]:
        if self._gone is not None:
            raise ServerGone(self._gone)
        self._number += 1
        asked = request(self._number, method, params)
        size = len(line_of(asked))
        if size > MAX_SENT_BYTES:
            raise RequestRefused(f"the message would have {size} bytes; {MAX_SENT_BYTES} are possible")
        notes, self._notes = self._notes, []
        try:
            return await self._answer([*notes, asked], countdown)
        except NoAnswer:
            # the protocol forbids to cancel the handshake
            if method != "initialize":
                reason = {"requestId": self._number, "reason": "the client waits no longer"}
                self._notes.append(notification("notifications/cancelled", reason))
            raise
        except ServerGone as error:
            self._gone = str(error)
            raise
        finally:
            await self._transport.done()

    async def _answer(self, messages: list[Message], countdown: Countdown) -> dict[str, Any]:
        """Send `messages`, the last of which asks, and answer what the server asks until it has answered itself."""
        incoming = await self._transport.begin(messages, countdown)
        while True:
            answers: list[Message] = []
            for message in incoming:
                if "method" in message:
                    answers += [answer_to(message)] if "id" in message else []
                elif message.get("id") == self._number:
                    return _result_of(message)
            if len(answers) > MAX_ASKED or sum(len(line_of(answer)) for answer in answers) > MAX_SENT_BYTES:
                raise ServerGone("it asks the client more at once than can be answered")
            incoming = await self._transport.go_on(answers, countdown)


def _result_of(answer: Message) -> dict[str, Any]:
    error = answer.get("error")
    if error is not None:
        code, said = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
        told = said if isinstance(said, str) else "without a message"
        raise RequestRefused(f"it answered with error {code}: {told}" if isinstance(code, int) else told)
    result = answer.get("result")
    if not isinstance(result, dict):
        raise NoAnswer("it answered without a result")
    return result
