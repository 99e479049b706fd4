"""A service whose API process can be killed and started again at the same address, and what is left of it."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
from pydantic import SecretStr

from drydock.client import TrainingClient
from drydock.service.child import ServiceChild
from drydock.service.run_dir import run_dir, worker_pids
from drydock.service.settings import ServiceSettings


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class RestartableService:
    """An async context manager; at its end nothing of the service may be left."""

    token = "a-token-for-tests"

    def __init__(self, state_dir: Path, **settings: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.settings = ServiceSettings(
            state_dir=state_dir, port=port, token=SecretStr(self.token), **{"outlive_api_s": 60.0, **settings}
        )
        self.base_url = f"http://127.0.0.1:{port}"
        self._child: ServiceChild | None = None

    @property
    def pid(self) -> int:
        """The API process."""
        assert self._child is not None
        return self._child.pid

    @property
    def run_dir(self) -> Path:
        """Folder of the workers' sockets."""
        return run_dir(self.settings.state_dir)

    def processes(self) -> set[int]:
        """Worker processes that run now, also one that is kept ready."""
        return {pid for pid in worker_pids(self.run_dir) if is_alive(pid)}

    def workers(self) -> set[int]:
        """Worker processes of sub-jobs."""
        return {pid for pid in self.processes() if _logs_below(pid, "/jobs/")}

    def worker_of(self, job_id: str, kind: str) -> int:
        """The worker process of a job's first sub-job of this kind, by the log file that it holds open."""
        [pid] = [pid for pid in self.processes() if _logs_below(pid, f"/jobs/{job_id}/{kind}-0/")]
        return pid

    async def replacement(self, job_id: str, kind: str, killed: int) -> int:
        """The worker process that takes the place of a killed one, once it is there."""
        async with asyncio.timeout(60):
            while True:
                found = [pid for pid in self.processes() if _logs_below(pid, f"/jobs/{job_id}/{kind}-0/")]
                if found and killed not in found:
                    return found[0]
                await asyncio.sleep(0.05)

    def client(self) -> TrainingClient:
        """Our client of it."""
        return TrainingClient(self.base_url, token=self.token)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._child is not None:
            await self._child.stop()
        ends = time.monotonic() + 5
        while self.processes() and time.monotonic() < ends:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"workers left behind: {left}"

    async def start(self) -> float:
        """Starts the API process; seconds until it answers."""
        started = time.monotonic()
        self._child = await ServiceChild.spawn(self.settings)
        await self._child.port(30)
        async with httpx.AsyncClient(base_url=self.base_url) as http:
            assert (await http.get("/healthz")).status_code == 200
        return time.monotonic() - started

    async def kill(self) -> None:
        """SIGKILL for the API process."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGKILL)
        await self._child.wait()
        self._child.release()

    async def restart(self) -> float:
        """Kills and starts the API process; seconds from the kill to the first answer."""
        killed = time.monotonic()
        await self.kill()
        await self.start()
        return time.monotonic() - killed


def _logs_below(pid: int, folder: str) -> bool:
    """Whether the process holds a file open whose path contains `folder`."""
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if folder in str(entry.readlink()):
                return True
    return False
