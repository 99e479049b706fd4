"""Starting a shard's process, and what can be said of one that ended."""

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

from drydock.rollout.shards.channel import Channel
from drydock.rollout.shards.launch import ShardLaunch

SECRETS = frozenset({"DRYDOCK_SERVICE_TOKEN", "DRYDOCK_SERVICE_DATABASE_URL"})
"""Variables that a shard does not inherit."""

_TAIL_BYTES = 2_000


async def spawn(launch: ShardLaunch, number: int) -> tuple[asyncio.subprocess.Process, Channel]:
    """A new process, in a session of its own so that a terminal's signals are the driver's, and the link to it."""
    launch.log_dir.mkdir(parents=True, exist_ok=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = await Channel.over(ours)
    try:
        with theirs, log_file(launch, number).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                *("--link-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if key not in SECRETS},
            )
    except BaseException:
        channel.close()
        raise
    return process, channel


def log_file(launch: ShardLaunch, number: int) -> Path:
    """Where the shard's output goes."""
    return launch.log_dir / f"shard_{number}.log"


def log_tail(file: Path) -> str:
    """The end of what was printed; empty where that cannot be read."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
    except OSError:
        return ""


def ending_of(code: int) -> str:
    """What a process with this exit status did, as a predicate."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
