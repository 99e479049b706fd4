"""Commands of the agent in its sandbox: a fresh shell each, in the directory that the previous one ended in.

Each command gets a small prologue (standard error joins standard output; on exit the shell prints its working
directory after a marker) and the marker is taken off the output again. A command that hides the marker (kills its own
shell, `exec`s something) simply leaves the directory as it was.

What the model did wrong (a failing, endless or unacceptable command) is an observation; what the sandbox did wrong is
SandboxCommandFailed and ends the rollout.
"""

import shlex
from hashlib import sha256
from typing import Protocol

from harbor.environments.base import ExecResult

from drydock.harness.observation import render_output, render_stopped
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess

MAX_COMMAND_BYTES = 100_000
"""Longest command taken; Linux refuses single arguments above 128 KiB."""


class Shell(Protocol):
    """What the terminal tool needs."""

    async def run(self, command: str) -> tuple[str, bool]:
        """Run `command`; return the text for the model and whether it counts as an error of the tool call.

        Raises SandboxCommandFailed when the sandbox could not run it.
        """
        ...


class SandboxShell:
    """Runs one rollout's commands and remembers the working directory between them."""

    def __init__(self, sandbox: SandboxAccess, *, rollout_id: str) -> None:
        self._sandbox = sandbox
        self._marker = f"\x1edrydock-cwd-{sha256(rollout_id.encode()).hexdigest()[:12]}:"
        self._directory: str | None = None

    async def run(self, command: str) -> tuple[str, bool]:
        """See Shell."""
        refusal = refusal_of(command)
        if refusal is not None:
            return refusal, True
        try:
            result = await self._sandbox.run(self._script(command))
        except CommandTimedOut:
            return render_stopped("", self._sandbox.timeout_s, self._sandbox.max_output_chars), False
        return self._observation(result), False

    def _script(self, command: str) -> str:
        enter = f"cd -- {shlex.quote(self._directory)} 2>/dev/null\n" if self._directory is not None else ""
        return f'exec 2>&1\ntrap \'printf "%s%s" "{self._marker}" "$PWD"\' EXIT\n{enter}{command}\n'

    def _observation(self, result: ExecResult) -> str:
        max_chars = self._sandbox.max_output_chars
        output = (result.stdout or "") + (result.stderr or "")
        visible, marker, directory = output.rpartition(self._marker)
        if marker:
            self._directory = directory.strip("\n") or self._directory
        else:
            visible = output
        if result.return_code == 124 and not marker:
            return render_stopped(visible, self._sandbox.timeout_s, max_chars)
        return render_output(visible, result.return_code, max_chars)


def refusal_of(command: str) -> str | None:
    """Why a command cannot even be handed to a shell, or None."""
    if "\0" in command:
        return "the command contains a NUL character"
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return "the command contains characters that are not valid text"
    if size > MAX_COMMAND_BYTES:
        return f"the command is {size} bytes long; the limit is {MAX_COMMAND_BYTES} (write a file in several steps)"
    return None
