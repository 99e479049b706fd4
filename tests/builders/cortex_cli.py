"""The published `cortex-training` command, called as its console script calls it."""

import asyncio
import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATABASE = "DB"


class CortexCli:
    """Runs commands with one configuration file; `environment` is what the process would inherit."""

    def __init__(self, folder: Path, base_url: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.config = folder / "config.json"
        connection = {"base_url": base_url, "database": DATABASE, "poll_interval": 0.05, "poll_timeout": 60}
        self.config.write_text(json.dumps({"connection": connection}))

    async def run(self, *arguments: str, stdin: str = "", code: int = 0) -> Any:
        """The JSON that a command prints; `code` is the exit code that it must have."""
        out, err = await self.text("--config", str(self.config), *arguments, stdin=stdin, code=code)
        return json.loads(out) if code == 0 else err

    async def text(self, *arguments: str, stdin: str = "", code: int = 0) -> tuple[str, str]:
        """What a command prints on both streams."""
        from cortex_training.cli import main

        out, err = io.StringIO(), io.StringIO()
        found = await asyncio.to_thread(main, list(arguments), stdout=out, stderr=err, stdin=io.StringIO(stdin))
        assert found == code, (arguments, out.getvalue(), err.getvalue())
        return out.getvalue(), err.getvalue()

    def file(self, name: str, value: Mapping[str, Any]) -> str:
        """A JSON file with this value; its path."""
        path = self.folder / name
        path.write_text(json.dumps(value))
        return str(path)


def screen_of(arguments: list[str], wanted: str, environment: Mapping[str, str], *, limit_s: float = 60) -> str:
    """What a command draws on a pseudo-terminal until `wanted` is on it; the command is ended then."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "cortex_training", *arguments]
    inherited = {**os.environ, "TERM": "xterm-256color", "LINES": "50", "COLUMNS": "200", **environment}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=inherited, start_new_session=True
    )
    os.close(follower)
    drawn = b""
    ends = time.monotonic() + limit_s
    try:
        while wanted.encode() not in drawn and time.monotonic() < ends and process.poll() is None:
            if select.select([leader], [], [], 0.5)[0]:
                try:
                    drawn += os.read(leader, 65_536)
                except OSError:
                    break
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    return drawn.decode(errors="replace")
