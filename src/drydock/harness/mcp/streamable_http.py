"""The transport `streamable-http`: every message is a POST of its own, the answer is its body or a stream of events.

The server may ask things in the middle of a stream and wait for the answer, so a request is a program in the
background of the sandbox whose output is read as it comes.
"""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.curl import Curl, Endpoint
from drydock.harness.mcp.failures import McpFailure, NoAnswer, ServerGone
from drydock.harness.mcp.hiding import Hiding
from drydock.harness.mcp.http_reply import HttpReply
from drydock.harness.mcp.messages import Message, line_of, messages_in
from drydock.harness.mcp.program import SandboxProgram
from drydock.harness.mcp.program_scripts import heredoc, stop_script
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess

if TYPE_CHECKING:
    from harbor.environments.base import BaseEnvironment

ACCEPTED = ("-H", "Accept: application/json, text/event-stream", "-H", "Content-Type: application/json")
FAREWELL_S = 2.0
"""How long the server may take to forget the session."""

_SESSION_ID = re.compile(r"[\x21-\x7e]{1,1024}")


class StreamableHttpTransport:
    """See McpTransport."""

    def __init__(
        self, endpoint: Endpoint, sandbox: SandboxAccess, environment: "BaseEnvironment", hide: Hiding
    ) -> None:
        self.protocol_version: str | None = None
        self._curl = Curl(endpoint, sandbox, environment, hide)
        self._hide = hide
        self._sandbox = sandbox
        self._number = 0
        self._program: SandboxProgram | None = None
        self._reply = HttpReply(hide=hide)

    async def open(self, countdown: Countdown) -> None:
        await self._curl.prepare(countdown)

    async def begin(self, messages: Sequence[Message], countdown: Countdown) -> list[Message]:
        *notes, request = messages
        if self.protocol_version is not None:
            self._curl.own_headers["MCP-Protocol-Version"] = self.protocol_version
        for note in notes:
            with suppress(McpFailure):  # a server that is not there any more fails the request
                await self._post(note, countdown)
        tidy = self._tidy()
        self._number += 1
        home = self._curl.home / f"{self._number}"
        post = self._curl.command(
            "-iN", *ACCEPTED, "--data-binary", f"@{home}/body", limit_s=countdown.left_s() + FAREWELL_S
        )
        self._program = SandboxProgram(
            self._sandbox,
            post,
            home=home,
            called="the request",
            hide=self._hide,
            prepare=f"{tidy}\ncat >{home}/body {heredoc(line_of(request))}",
        )
        self._reply = HttpReply(hide=self._hide)
        return await self._read(countdown)

    async def go_on(self, answers: Sequence[Message], countdown: Countdown) -> list[Message]:
        for answer in answers:
            await self._post(answer, countdown)
        return await self._read(countdown)

    async def done(self) -> None:
        program, self._program = self._program, None
        if program is not None and not program.ended:
            with suppress(CommandTimedOut):  # the next request removes what is left
                await program.stop(grace=False)

    async def close(self) -> None:
        farewell = shlex.join(self._curl.command("-X", "DELETE", "-o", "/dev/null", limit_s=FAREWELL_S))
        parting = f"{farewell} 2>/dev/null; " if "Mcp-Session-Id" in self._curl.own_headers else ""
        await self._sandbox.run(f"{parting}{self._tidy()}\nrm -rf {self._curl.home}", timeout_s=10 + FAREWELL_S)

    def _tidy(self) -> str:
        """The script that removes what is left of the latest request."""
        return stop_script(self._curl.home / f"{self._number}", 0)

    async def _read(self, countdown: Countdown) -> list[Message]:
        program, reply = self._program, self._reply
        assert program is not None
        if program.ended:
            raise NoAnswer("its reply ended without an answer")
        gone: str | None = None
        try:
            lines = await program.exchange(":", countdown)
        except ServerGone as error:
            lines, gone = [], str(error)
            if not (program.ended and reply.has_head):
                program.ended = True
                raise NoAnswer(gone) from None
        events = reply.feed(lines)
        messages = messages_in([data for kind, data in events if kind == "message"])
        if program.ended:
            problem = reply.problem()
            if problem is not None:
                raise NoAnswer(problem)
            messages += messages_in(["\n".join(reply.body)])
            if gone is not None and not messages:
                raise NoAnswer(gone)
        self._keep_session()
        return messages

    def _keep_session(self) -> None:
        given = self._reply.headers.get("mcp-session-id")
        if given is not None and _SESSION_ID.fullmatch(given):
            self._curl.own_headers["Mcp-Session-Id"] = given

    async def _post(self, message: Message, countdown: Countdown) -> None:
        """Send what has no answer of its own."""
        limit_s = countdown.left_s()
        post = shlex.join(self._curl.command("-fo", "/dev/null", *ACCEPTED, "--data-binary", "@-", limit_s=limit_s))
        try:
            await self._curl.run(f"{post} {heredoc(line_of(message))}", limit_s)
        except McpFailure as error:
            raise NoAnswer(f"the message {message.get('method', 'with an answer')!r} was not taken: {error}") from None
