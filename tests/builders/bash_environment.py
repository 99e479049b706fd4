"""A Harbor environment that runs bash in a temporary directory of this machine: the bare contract, no isolation.

For tests of what uses an environment. `fail_start` makes it refuse to start, `fail_exec` makes it lose its sandbox.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths


class BashEnvironment(BaseEnvironment):
    def __init__(self, *args: Any, fail_start: bool = False, fail_exec: bool = False, **kwargs: Any) -> None:
        self.fail_start = fail_start
        self.fail_exec = fail_exec
        self.root: Path | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> EnvironmentType:
        return EnvironmentType.DOCKER

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        if self.fail_start:
            raise RuntimeError("this sandbox refuses to start")
        self.root = Path(tempfile.mkdtemp(prefix="bash-environment-"))

    async def stop(self, delete: bool) -> None:
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)

    def _local(self, path: str | Path) -> Path:
        assert self.root is not None
        return self.root / str(path).lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._local(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._local(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._local(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._local(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        if self._local(source_dir).exists():
            shutil.copytree(self._local(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        if self.fail_exec:
            raise OSError("the sandbox is gone")
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=self.root,
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout_sec):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return ExecResult(stdout=stdout.decode(), stderr=stderr.decode(), return_code=process.returncode or 0)


def bash_environment(directory: Path, **kwargs: Any) -> BashEnvironment:
    """One to be used outside a trial, with its files below `directory`."""
    paths = TrialPaths(trial_dir=directory / "trial")
    paths.mkdir()
    return BashEnvironment(
        environment_dir=directory,
        environment_name="test",
        session_id="test",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(),
        **kwargs,
    )
