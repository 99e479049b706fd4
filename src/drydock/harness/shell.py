"""Commands of the agent in its sandbox: a fresh shell each, in the directory that the previous one ended in.

Only `BaseEnvironment.exec` is used, so this works with every Harbor environment. Each command gets a small prologue
(standard error joins standard output; on exit the shell prints its working directory after a marker) and the marker
is taken off the output again. A command that hides the marker (kills its own shell, `exec`s something) simply leaves
the directory as it was.

What the model did wrong (a failing, endless or unacceptable command) is an observation; what the sandbox did wrong is
SandboxCommandFailed and ends the rollout, so that the policy is never blamed for it.
"""

import asyncio
import re
import shlex
from hashlib import sha256

from harbor.environments.base import BaseEnvironment, ExecResult

from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.observation import render_output, render_stopped

MAX_COMMAND_BYTES = 100_000
"""Longest command taken; Linux refuses single arguments above 128 KiB."""

EXEC_GRACE_S = 15.0
"""How much longer than its limit a command may take to be stopped before the sandbox counts as broken."""

_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)


class SandboxShell:
    """Runs one rollout's commands and remembers the working directory between them."""

    def __init__(
        self, environment: BaseEnvironment, *, rollout_id: str, command_timeout_s: float, max_output_chars: int
    ) -> None:
        self._environment = environment
        self._timeout_s = command_timeout_s
        self._max_chars = max_output_chars
        self._marker = f"\x1edrydock-cwd-{sha256(rollout_id.encode()).hexdigest()[:12]}:"
        self._directory: str | None = None

    async def run(self, command: str) -> tuple[str, bool]:
        """Run `command`; return the text for the model and whether it counts as an error of the tool call.

        Raises SandboxCommandFailed when the sandbox could not run it.
        """
        refusal = _refusal(command)
        if refusal is not None:
            return refusal, True
        patience = asyncio.timeout(self._timeout_s + EXEC_GRACE_S)
        try:
            async with patience:
                result = await self._environment.exec(self._script(command), timeout_sec=max(1, round(self._timeout_s)))
        except Exception as error:
            if _is_command_timeout(error) and not patience.expired():
                return render_stopped("", self._timeout_s, self._max_chars), False
            raise SandboxCommandFailed(f"the sandbox could not run a command: {error!r}") from error
        return self._observation(result), False

    def _script(self, command: str) -> str:
        enter = f"cd -- {shlex.quote(self._directory)} 2>/dev/null\n" if self._directory is not None else ""
        return f'exec 2>&1\ntrap \'printf "%s%s" "{self._marker}" "$PWD"\' EXIT\n{enter}{command}\n'

    def _observation(self, result: ExecResult) -> str:
        output = (result.stdout or "") + (result.stderr or "")
        visible, marker, directory = output.rpartition(self._marker)
        if marker:
            self._directory = directory.strip("\n") or self._directory
        else:
            visible = output
        if result.return_code == 124 and not marker:
            return render_stopped(visible, self._timeout_s, self._max_chars)
        return render_output(visible, result.return_code, self._max_chars)


def _refusal(command: str) -> str | None:
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


def _is_command_timeout(error: Exception) -> bool:
    """Harbor environments report a command's time limit as TimeoutError or as RuntimeError with such a message."""
    return isinstance(error, TimeoutError) or (isinstance(error, RuntimeError) and bool(_TIMED_OUT.search(str(error))))
