"""Commands of the agent in one shell that lives as long as its rollout.

The shell is an interactive bash without a terminal: it reads its commands from a named pipe, a time limit interrupts it
as Ctrl-C would (the command ends, variables and background jobs stay), and an `exit` ends it. Each command is one
`exec` of the environment: the script hands the command over, waits for its end, and prints the output and how it ended
after a marker. A shell that ended or could not be interrupted is replaced by a new one in the last known directory, and
the model is told what is lost.

Commands read nothing from standard input. What a background job prints after its command has ended is not shown; it
should write to a file.
"""

from hashlib import sha256
from pathlib import PurePosixPath
from uuid import uuid4

from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.observation import render_output, render_stopped
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess
from drydock.harness.shell import refusal_of
from drydock.harness.shell_scripts import NEEDED_PROGRAMS, Ended, run_script, start_script

WAITER_GRACE_S = 10.0
"""How much longer than the command's limit the script that waits for it may take."""

LOST = "a new shell starts in the same directory, without its variables and functions"


class PersistentShell:
    """Runs one rollout's commands in one bash, which is started at the first of them."""

    def __init__(self, sandbox: SandboxAccess, *, rollout_id: str) -> None:
        self._sandbox = sandbox
        self._marker = f"\x1edrydock-end-{sha256(rollout_id.encode()).hexdigest()[:12]}:"
        self._home: PurePosixPath | None = None
        self._directory: str | None = None
        self._number = 0

    async def run(self, command: str) -> tuple[str, bool]:
        """See Shell."""
        refusal = refusal_of(command)
        if refusal is not None:
            return refusal, True
        home = self._home or await self._start()
        if isinstance(home, str):
            return home, True
        self._number += 1
        limit_s = self._sandbox.timeout_s
        script = run_script(home, self._number, command, limit_s=limit_s, marker=self._marker)
        try:
            result = await self._sandbox.run(script, timeout_s=limit_s + WAITER_GRACE_S)
        except CommandTimedOut:
            self._home = None
            return f"{render_stopped('', limit_s, self._sandbox.max_output_chars)}\n[{LOST}]", False
        shown, marker, report = ((result.stdout or "") + (result.stderr or "")).rpartition(self._marker)
        return self._observation(shown, report) if marker else self._observation(report, f"{Ended.GONE}\n\n")

    async def _start(self) -> PurePosixPath | str:
        """Start a shell; return its directory in the sandbox, or what the model is told when that is not possible.

        Raises SandboxCommandFailed when the sandbox lacks a program that is needed.
        """
        home = PurePosixPath("/tmp") / f".shell-{uuid4().hex[:12]}"
        try:
            result = await self._sandbox.run(start_script(home, self._directory), timeout_s=WAITER_GRACE_S)
        except CommandTimedOut as error:
            raise SandboxCommandFailed("the sandbox could not start a shell in time") from error
        if result.return_code == 127:
            raise SandboxCommandFailed(
                f"the tool persistent_terminal needs {', '.join(NEEDED_PROGRAMS)} in the sandbox; "
                "add them to the task's Dockerfile or use the tool terminal"
            )
        if result.return_code != 0:
            reason = ((result.stderr or "") + (result.stdout or "")).strip()
            return f"[no shell could be started: {reason or f'exit code {result.return_code}'}]"
        self._home, self._number = home, 0
        return home

    def _observation(self, output: str, report: str) -> tuple[str, bool]:
        """The text for an output and the script's report (`Ended`, exit code and directory, a line each)."""
        ended, code, directory = [*report.split("\n", 2), "", ""][:3]
        self._directory = directory.strip("\n") or self._directory
        max_chars = self._sandbox.max_output_chars
        if ended == Ended.DONE:
            return render_output(output, int(code), max_chars), False
        if ended == Ended.STOPPED:
            return render_stopped(output, self._sandbox.timeout_s, max_chars), False
        self._home = None
        if ended == Ended.KILLED:
            return f"{render_stopped(output, self._sandbox.timeout_s, max_chars)}\n[it had to be killed: {LOST}]", False
        output = output.removesuffix("exit\n") if code else output  # an interactive bash says so
        text = render_output(output, 0, max_chars) if output.strip() else ""
        note = f"[the shell ended{f' with exit code {code}' if code else ''}: {LOST}]"
        return f"{text}\n{note}" if text else note, False
