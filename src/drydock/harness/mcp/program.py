"""A program in the background of a sandbox that the driver writes to and reads from, one command for each exchange."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import PurePosixPath
from uuid import uuid4

from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.failures import McpFailure, NoAnswer, ServerGone
from drydock.harness.mcp.hiding import Hiding
from drydock.harness.mcp.program_scripts import (
    CLOSE_GRACE_S,
    MAX_ERROR_CHARS,
    Read,
    exchange_script,
    heredoc,
    start_script,
    stop_script,
)
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess

MAX_LINE_BYTES = 4 << 20
"""Longest line taken; a program that writes a longer one is given up."""

MAX_SENT_BYTES = 100_000
"""Longest message that is sent; the script that holds it has to fit into an argument where sandboxes take it as one."""

SCRIPT_GRACE_S = 10.0
"""How much longer than its limit the script that waits may take."""

STOP_LIMIT_S = 10.0


class ProgramMissing(McpFailure):
    """The sandbox lacks a program; the message names it."""


def new_home() -> PurePosixPath:
    """A directory in the sandbox that is not there yet."""
    return PurePosixPath("/tmp") / f".mcp-{uuid4().hex[:12]}"


class SandboxProgram:
    """One program with its pipes; what it writes is taken by lines.

    command: the program and its arguments. home: its directory. prepare: a shell command to be run before. called: in
    messages. hide: for what is shown of what it wrote.
    """

    def __init__(
        self,
        sandbox: SandboxAccess,
        command: Sequence[str],
        *,
        home: PurePosixPath | None = None,
        prepare: str = ":",
        called: str = "it",
        hide: Hiding = Hiding(),
    ) -> None:
        self.home = home or new_home()
        self.ended = False
        self._sandbox = sandbox
        self._called = called
        self._hide = hide
        self._start = start_script(self.home, command, prepare)
        self._rest = bytearray()
        self._begun = False

    async def exchange(self, send: str, countdown: Countdown) -> list[str]:
        """Send by the shell command `send` and return what was written meanwhile, in whole lines.

        The first exchange starts the program. There may be no line yet although something came. Raises NoAnswer when
        nothing came in time, ServerGone when nothing will come any more, ProgramMissing, SandboxCommandFailed.
        """
        limit_s = countdown.left_s()
        script = exchange_script(self.home, send, limit_s=limit_s)
        if not self._begun:
            self._begun, script = True, f"{self._start}{script}"
        try:
            done = await self._sandbox.run(script, timeout_s=limit_s + SCRIPT_GRACE_S)
        except CommandTimedOut:
            raise ServerGone("the sandbox did not come back from waiting for it") from None
        output = done.stdout or ""
        if done.return_code == 127 and ":" not in output:
            raise ProgramMissing(output.strip() or "bash")
        encoded, found, report = output.partition(":")
        if not found:
            raise ServerGone(f"the sandbox could not talk to it: {self._hide(done.stderr or output).strip()[-500:]}")
        self._rest += _decoded(encoded)
        return self._lines(report, countdown.limit_s)

    async def stop(self, *, grace: bool = True) -> None:
        """End the program, with time to do so by itself, and remove its files; nothing when it was never started.

        Raises CommandTimedOut and SandboxCommandFailed.
        """
        if self._begun:
            await self._sandbox.run(stop_script(self.home, CLOSE_GRACE_S if grace else 0), timeout_s=STOP_LIMIT_S)

    def _lines(self, report: str, limit_s: float) -> list[str]:
        said, _, errors = report.partition("\n")
        reason, sent, code = [*said.strip().split(":"), "", ""][:3]
        *lines, self._rest = self._rest.split(b"\n")
        if any(len(line) > MAX_LINE_BYTES for line in (*lines, self._rest)):
            raise ServerGone(f"it wrote a line of more than {MAX_LINE_BYTES} bytes")
        self.ended = reason == f"{Read.ENDED}"
        if self.ended and self._rest:
            lines.append(self._rest)
        texts = [line.decode(errors="replace") for line in lines]
        if reason != f"{Read.UNTAKEN}" and (reason == f"{Read.DATA}" or any(line.strip() for line in texts)):
            return texts
        written = _decoded(errors).decode(errors="replace").lstrip("\N{REPLACEMENT CHARACTER}")
        evidence = self._hide.end_of(written, MAX_ERROR_CHARS)
        shown = f"; the end of its standard error:\n{evidence}" if evidence else ""
        if reason == f"{Read.SILENT}":
            raise NoAnswer(f"it did not answer within {limit_s:g} s{shown}")
        if reason == f"{Read.UNSENT}":
            raise NoAnswer(f"the message could not be sent (exit code {sent}){shown}")
        if self.ended:
            raise ServerGone(f"{self._called} ended{f' with exit code {code}' if code else ''}{shown}")
        raise ServerGone(f"it did not read the message within {limit_s:g} s{shown}")


def written_line(home: PurePosixPath, line: str) -> str:
    """The shell command that writes the JSON of an object to the program of `home`, as a line."""
    return f"cat 1<>{home}/in {heredoc(line)}"


def _decoded(text: str) -> bytes:
    """Raises ServerGone for a text that is not all there, because the sandbox keeps only so much of an output."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise ServerGone("it wrote more at once than could be read") from None
