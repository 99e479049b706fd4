"""HTTP requests that `curl` makes in the sandbox: what the sandbox cannot reach, these cannot either.

Headers that the task states are in a file that only the agent's user can read, because a command line is visible to
every process of the sandbox, and the command that a sandbox is given may be visible beside it too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from drydock.deadline import deadline
from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.mcp.countdown import Countdown
from drydock.harness.mcp.failures import NoAnswer
from drydock.harness.mcp.hiding import Hiding
from drydock.harness.mcp.program import ProgramMissing, new_home
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess
from drydock.own_directory import own_directory

if TYPE_CHECKING:
    from harbor.environments.base import BaseEnvironment


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, and the headers that every request to it carries (secrets, perhaps)."""

    url: str
    headers: Mapping[str, str]


class Curl:
    """Writes the command lines of requests to one endpoint.

    home: a directory in the sandbox for what belongs to them, there once `prepare` has been awaited.
    """

    def __init__(
        self, endpoint: Endpoint, sandbox: SandboxAccess, environment: "BaseEnvironment", hide: Hiding
    ) -> None:
        self.home: PurePosixPath = new_home()
        self.own_headers: dict[str, str] = {}
        """What the protocol adds to every request."""
        self._endpoint = endpoint
        self._sandbox = sandbox
        self._environment = environment
        self._hide = hide

    async def prepare(self, countdown: Countdown) -> None:
        """Make the directory and put the headers there. Raises ProgramMissing, NoAnswer, SandboxCommandFailed."""
        await self._run(f"command -v curl >/dev/null || exit 127; mkdir -m 700 {self.home}", countdown)
        if self._endpoint.headers:
            file = self.home / "headers"
            await self._upload(file, countdown.left_s())
            own = f'chown "$(stat -c %u:%g {self.home})" {file} && chmod 600 {file}'
            await self._run(own, countdown, user="root")

    def command(self, *options: str, limit_s: float | None = None, url: str | None = None) -> list[str]:
        """A request to the endpoint, or to another address of the same server, with further options of curl's."""
        words = ["curl", "-q", "-gsS", "--proto", "=http,https", "--suppress-connect-headers", "-H", "Expect:"]
        if limit_s is not None:
            words += ["--max-time", f"{math.ceil(limit_s)}"]
        if self._endpoint.headers:
            words += ["-H", f"@{self.home}/headers"]
        for name, value in self.own_headers.items():
            words += ["-H", f"{name}: {value}"]
        return [*words, *options, "--url", url or self._endpoint.url]

    async def run(self, script: str, limit_s: float) -> str:
        """Carry out a script with requests; its output. Raises NoAnswer when it fails."""
        try:
            done = await self._sandbox.run(script, timeout_s=limit_s + 10)
        except CommandTimedOut:
            raise NoAnswer(f"it did not answer within {limit_s:.3g} s") from None
        if done.return_code != 0:
            raise NoAnswer(self._hide(done.stderr or done.stdout or f"exit code {done.return_code}").strip()[-500:])
        return done.stdout or ""

    async def _run(self, script: str, countdown: Countdown, user: str | None = None) -> None:
        try:
            done = await self._sandbox.run(script, timeout_s=countdown.left_s(), user=user)
        except CommandTimedOut as error:
            raise SandboxCommandFailed("the sandbox could not make a directory in time") from error
        if done.return_code == 127:
            raise ProgramMissing("curl")
        if done.return_code != 0:
            raise SandboxCommandFailed(f"no directory for an MCP server in the sandbox: {done.stderr or done.stdout}")

    async def _upload(self, target: PurePosixPath, limit_s: float) -> None:
        """An environment may raise whatever it likes; what it says is not repeated, it might quote the file."""
        with NamedTemporaryFile("w", dir=_directory(), encoding="utf-8") as file:
            file.writelines(f"{name}: {value}\n" for name, value in self._endpoint.headers.items())
            file.flush()
            try:
                async with deadline("headers to be put into the sandbox", limit_s):
                    await self._environment.upload_file(file.name, str(target))
            except Exception as error:
                kind = type(error).__name__
                raise SandboxCommandFailed(f"headers could not be put into the sandbox: {kind}") from None


@cache
def _directory() -> Path:
    return own_directory("headers")
