"""The transport `sse` of the protocol's first versions: one stream of events for all that the server says.

Its first event names the address that messages are sent to; it has to be on the server that the task names.
"""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.curl import Curl, Endpoint
from drydock.harness.mcp.failures import NoAnswer, ServerGone
from drydock.harness.mcp.hiding import Hiding
from drydock.harness.mcp.http_reply import HttpReply
from drydock.harness.mcp.messages import Message, line_of, messages_in
from drydock.harness.mcp.program import SandboxProgram
from drydock.harness.mcp.program_scripts import heredoc
from drydock.harness.sandbox_access import SandboxAccess

if TYPE_CHECKING:
    from harbor.environments.base import BaseEnvironment

MAX_ADDRESS_CHARS = 8_192
"""Of the address for messages; it has to fit into a command."""


class SseTransport:
    """See McpTransport."""

    def __init__(
        self, endpoint: Endpoint, sandbox: SandboxAccess, environment: "BaseEnvironment", hide: Hiding
    ) -> None:
        self.protocol_version: str | None = None
        self._url = endpoint.url
        self._curl = Curl(endpoint, sandbox, environment, hide)
        self._hide = hide
        self._sandbox = sandbox
        self._program: SandboxProgram | None = None
        self._reply = HttpReply(hide=hide)
        self._address = ""

    async def open(self, countdown: Countdown) -> None:
        await self._curl.prepare(countdown)
        listen = self._curl.command("-iN", "-H", "Accept: text/event-stream")
        self._program = SandboxProgram(self._sandbox, listen, home=self._curl.home / "events", hide=self._hide)
        while not self._address:
            for kind, data in await self._read(":", countdown):
                if kind == "endpoint":
                    self._address = self._on_the_same_server(data)

    async def begin(self, messages: Sequence[Message], countdown: Countdown) -> list[Message]:
        return await self.go_on(messages, countdown)

    async def go_on(self, answers: Sequence[Message], countdown: Countdown) -> list[Message]:
        if self.protocol_version is not None:
            self._curl.own_headers["MCP-Protocol-Version"] = self.protocol_version
        options = ("-fo", "/dev/null", "-H", "Content-Type: application/json", "--data-binary", "@-")
        post = shlex.join(self._curl.command(*options, limit_s=countdown.left_s(), url=self._address))
        posts = [f"post {heredoc(line_of(answer))}" for answer in answers]
        send = "\n".join([f"post() {{ {post}; }}", *posts] if posts else [":"])
        return messages_in([data for kind, data in await self._read(send, countdown) if kind == "message"])

    async def done(self) -> None:
        """Nothing: an answer that comes late is left out when it is read."""

    async def close(self) -> None:
        try:
            if self._program is not None:
                await self._program.stop(grace=False)
        finally:
            await self._sandbox.run(f"rm -rf {self._curl.home}", timeout_s=10)

    async def _read(self, send: str, countdown: Countdown) -> list[tuple[str, str]]:
        assert self._program is not None
        reply = self._reply
        lines = await self._program.exchange(send, countdown)
        try:
            events = reply.feed(lines)
        except NoAnswer as error:
            raise ServerGone(str(error)) from None
        if reply.has_head and (problem := reply.problem() or ("" if reply.is_stream else "its reply is no stream")):
            raise ServerGone(problem)
        if self._program.ended and not events:
            raise ServerGone(reply.problem() or "it ended the stream of events")
        return events

    def _on_the_same_server(self, address: str) -> str:
        try:
            url = urljoin(self._url, address.strip())
            there, here = urlsplit(url), urlsplit(self._url)
        except ValueError:
            raise ServerGone("it names no address for messages") from None
        if not url.isprintable() or len(url) > MAX_ADDRESS_CHARS:
            raise ServerGone("it names an address for messages that cannot be asked")
        if (there.scheme, there.netloc) != (here.scheme, here.netloc):
            raise ServerGone("it names an address on another server for messages")
        return url
