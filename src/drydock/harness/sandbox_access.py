"""What the agent's tools can do in the sandbox: run a shell script as the agent's user, with a time limit.

Only `BaseEnvironment.exec` is used, so this works with every Harbor environment. What the sandbox did wrong is
SandboxCommandFailed and ends the rollout, so that the policy is never blamed for it; a script that ran into its limit
is CommandTimedOut, which a tool turns into something the model can read.
"""

import asyncio
import re

from harbor.environments.base import BaseEnvironment, ExecResult

from drydock.harness.failures import SandboxCommandFailed

EXEC_GRACE_S = 15.0
"""How much longer than its limit a command may take to be stopped before the sandbox counts as broken."""

_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)


class CommandTimedOut(Exception):
    """A script ran longer than its limit and was stopped."""


class SandboxAccess:
    """The sandbox of one rollout.

    timeout_s: limit of a script that names none. max_output_chars: what the model is shown of an output at most.
    """

    def __init__(self, environment: BaseEnvironment, *, timeout_s: float, max_output_chars: int) -> None:
        self._environment = environment
        self.timeout_s = timeout_s
        self.max_output_chars = max_output_chars

    async def run(self, script: str, *, timeout_s: float | None = None, user: str | None = None) -> ExecResult:
        """Run `script` in a fresh shell in the task's working directory.

        user: who runs it; None for the agent's user. Raises CommandTimedOut and SandboxCommandFailed.
        """
        limit_s = timeout_s if timeout_s is not None else self.timeout_s
        patience = asyncio.timeout(limit_s + EXEC_GRACE_S)
        try:
            async with patience:
                return await self._environment.exec(script, timeout_sec=max(1, round(limit_s)), user=user)
        except Exception as error:
            if _is_command_timeout(error) and not patience.expired():
                raise CommandTimedOut(f"ran longer than {limit_s:g} s") from error
            raise SandboxCommandFailed(f"the sandbox could not run a command: {error!r}") from error


def _is_command_timeout(error: Exception) -> bool:
    """Harbor environments report a command's time limit as TimeoutError or as RuntimeError with such a message."""
    return isinstance(error, TimeoutError) or (isinstance(error, RuntimeError) and bool(_TIMED_OUT.search(str(error))))
