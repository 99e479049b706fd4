"""A way out for a sandbox whose run allows it: user-mode networking by slirp4netns.

The sandbox keeps its own network namespace. slirp4netns attaches to it from outside and translates connections in
user space, with the host's loopback switched off, so neither the model endpoint nor anything else that listens on
127.0.0.1 can be reached; nor can link-local addresses (see `routes`). It ends with the pipe that the driver holds, so
it cannot outlive the driver.
"""

import asyncio
import contextlib
import os
import shutil
import signal

from drydock.deadline import deadline
from drydock.errors import DeadlineExceeded, SandboxUnavailable

NAMESERVER = "10.0.2.3"
_READY_WAIT_S = 10.0
_END_WAIT_S = 5.0


class Uplink:
    """One running slirp4netns."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline = lifeline

    @classmethod
    async def attach(cls, pid: int) -> "Uplink":
        """Connect the network namespace of `pid`. Raises SandboxUnavailable without slirp4netns."""
        if shutil.which("slirp4netns") is None:
            raise SandboxUnavailable("allow_network needs slirp4netns: run `apt-get install slirp4netns`")
        ready_read, ready_write = os.pipe()
        lifeline_read, lifeline = os.pipe()
        errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        try:
            process = await asyncio.create_subprocess_exec(
                *("slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback"),
                *("--enable-sandbox", "--enable-seccomp"),
                *(f"--ready-fd={ready_write}", f"--exit-fd={lifeline_read}", str(pid), "tap0"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[ready_write, lifeline_read],
                env={"PATH": os.environ.get("PATH", os.defpath)},
            )
        except BaseException:
            for descriptor in (ready_read, lifeline, errors):
                os.close(descriptor)
            raise
        finally:
            os.close(ready_write)
            os.close(lifeline_read)
        uplink = cls(process, lifeline)
        try:
            await _readable(ready_read)
            if not os.read(ready_read, 1):
                complaint = os.pread(errors, 500, 0).decode(errors="replace").strip()
                raise SandboxUnavailable(f"slirp4netns could not connect a sandbox to the network: {complaint}")
        except BaseException:
            await uplink.detach()
            raise
        finally:
            os.close(ready_read)
            os.close(errors)
        return uplink

    async def detach(self) -> None:
        """Cut the connection."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with deadline("slirp4netns to end", _END_WAIT_S):
                await self._process.wait()
        except DeadlineExceeded:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with deadline("slirp4netns to connect a sandbox", _READY_WAIT_S):
            await ready.wait()
    finally:
        loop.remove_reader(descriptor)
