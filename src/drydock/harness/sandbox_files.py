"""Text files of a sandbox, read and written by its own shell as the agent's user.

So a path means what it means to the agent's commands: its permissions, links and mounts hold, and a file keeps its
owner, mode and identity when it is rewritten. Contents travel as base64, because a shell's output is not exact for all
bytes. Needs `base64`, `cat`, `wc` and `mkdir` in the sandbox.
"""

import base64
import binascii
import posixpath
import shlex
from uuid import uuid4

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess

MAX_FILE_BYTES = 500_000
"""Largest file taken: its base64 form is below the output that sandboxes keep."""

CHUNK_BYTES = 60_000
"""Bytes written in one command, a multiple of 3; Linux refuses single arguments above 128 KiB."""


class SandboxFiles:
    """Reads and writes one rollout's files; every refusal is a ToolRefused that says why."""

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._sandbox = sandbox

    async def read(self, path: str) -> str | None:
        """The text of the file, None when there is nothing at `path`."""
        file = shlex.quote(path)
        kind, _, rest = (
            await self._run(
                f"if [ -d {file} ]; then echo directory; elif [ ! -e {file} ]; then echo missing\n"
                f"elif [ ! -f {file} ]; then echo special\n"
                f"else size=$(wc -c <{file}) || exit 1; echo file; echo $size\n"
                f"if [ $size -le {MAX_FILE_BYTES} ]; then base64 <{file} || exit 1; fi; fi"
            )
        ).partition("\n")
        if kind == "missing":
            return None
        if kind != "file":
            raise ToolRefused(f"{path} is a {kind if kind == 'directory' else 'special file'}, not a text file")
        size, _, encoded = rest.partition("\n")
        try:
            content = base64.b64decode(encoded)
        except binascii.Error:
            content = b""
        if len(content) != int(size):
            raise ToolRefused(f"{path} has {int(size)} bytes, too many for the editor; use the terminal")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise ToolRefused(f"{path} is not UTF-8 text; use the terminal")
        return text

    async def write(self, path: str, text: str) -> None:
        """Give the file at `path` this content; folders that are missing are made."""
        try:
            content = text.encode()
        except UnicodeEncodeError:
            raise ToolRefused("the text contains characters that are not valid text") from None
        if len(content) > MAX_FILE_BYTES:
            raise ToolRefused(f"the file would have {len(content)} bytes; the editor takes {MAX_FILE_BYTES}")
        staged = f"/tmp/.edit-{uuid4().hex[:12]}"
        chunks = [content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES)] or [b""]
        file, folder = shlex.quote(path), shlex.quote(posixpath.dirname(path))
        for number, chunk in enumerate(chunks, 1):
            script = f"base64 -d >>{staged} <<'END' || {{ rm -f {staged}; exit 1; }}\n"
            script += f"{base64.b64encode(chunk).decode()}\nEND\n"
            if number == len(chunks):
                script += f"mkdir -p -- {folder} && cat {staged} >{file}; code=$?; rm -f {staged}; exit $code"
            await self._run(script)

    async def remove(self, path: str) -> None:
        """Remove the file."""
        await self._run(f"rm -f -- {shlex.quote(path)}")

    async def list_directory(self, path: str) -> list[str] | None:
        """What is in a directory, two levels deep, hidden entries left out; None when `path` is no directory."""
        folder = shlex.quote(path)
        listing = await self._run(
            f"[ -d {folder} ] || exit 0; echo {folder}; cd -- {folder} || exit 1\n"
            'for one in * */*; do [ -e "$one" ] || continue; '
            'if [ -d "$one" ]; then printf \'%s/\\n\' "$one"; else printf \'%s\\n\' "$one"; fi; done'
        )
        return sorted(listing.splitlines()[1:]) if listing else None

    async def _run(self, script: str) -> str:
        """The output of a script that works; raises ToolRefused with what a failing one says."""
        try:
            done = await self._sandbox.run(script)
        except CommandTimedOut as error:
            raise ToolRefused(f"the files could not be reached: {error}") from error
        if done.return_code == 127:
            raise SandboxCommandFailed(
                f"the tool file_editor lacks a program in the sandbox: {done.stderr or done.stdout}"
            )
        if done.return_code != 0:
            said = ((done.stderr or "") + (done.stdout or "")).strip().splitlines()
            reason = said[-1].split(": ", 2)[-1] if said else f"exit code {done.return_code}"
            raise ToolRefused(reason)
        return done.stdout or ""
