"""What the local and the host environment share of Harbor's environment contract.

A command costs one message to process 1 of the sandbox; files move through its root directory. Log directories are
not mounted from the host (a link planted in one would be followed there), Harbor downloads them, which is cheap here.
"""

import difflib
import inspect
import os
import stat
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drydock.errors import ConfigError, SandboxError, TaskError
from drydock.sandbox.dockerfile_plan import Plan
from drydock.sandbox.locations import default_cache_dir, default_state_dir
from drydock.sandbox.machine import Machine
from drydock.sandbox.transfer import (
    Budget,
    clear_way_to,
    download_directory,
    download_file,
    kind_of,
    make_directory,
    upload_directory,
    upload_file,
)
from drydock.sandbox.transfer_pool import in_transfer_pool

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOG_DIRECTORIES = ("/logs/agent", "/logs/artifacts", "/logs/verifier")


class SandboxOptions(BaseModel):
    """Keyword arguments that both environments take (`environment.kwargs` of a trial)."""

    model_config = ConfigDict(extra="forbid")

    state_dir: Path = Field(default_factory=default_state_dir)
    """Where running sandboxes are recorded for the reaper."""

    cache_dir: Path = Field(default_factory=default_cache_dir)
    """Where the root file system and Dockerfile layers are kept."""

    max_output_bytes: int = Field(default=1 << 20, ge=1024)
    """How much of each of stdout and stderr of one command is kept; the middle of the rest is dropped."""

    max_transfer_mb: int = Field(default=512, ge=1)
    """Bound on one download from a sandbox."""


class SandboxEnvironment(BaseEnvironment):
    """Base of LocalEnvironment and HostEnvironment: everything but how the machine is made."""

    options_type: type[SandboxOptions] = SandboxOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given, rest = _split_options(self.options_type, kwargs)
        self.settings = given
        self._machine: Machine | None = None
        self._image_env: dict[str, str] = {}
        self._image_user = ""
        self._workdir = "/"
        super().__init__(*args, **rest)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities | None:
        return EnvironmentResourceCapabilities(fractional_cpus=True)

    def _validate_definition(self) -> None:
        compose = self.environment_dir / "docker-compose.yaml"
        if compose.exists():
            raise TaskError(f"{compose}: the {self.type()} sandbox runs one container, not a composition")
        if not (self.environment_dir / "Dockerfile").exists() and not self.task_env_config.docker_image:
            raise TaskError(f"{self.environment_dir} has no Dockerfile, and the task names no docker_image")

    async def stop(self, delete: bool) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            await machine.stop()

    async def kill_processes(self) -> None:
        """Kill everything that runs in the sandbox. Its files stay, and commands can be run afterwards.

        Harbor's log directories are put back where they were removed: what follows writes there.
        """
        machine = self._running()
        await machine.kill_processes()
        await in_transfer_pool(self._restore_logs, machine.root)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        done = await self._running().run(
            command,
            user=self._user_of(self._resolve_user(user)),
            cwd=str(PurePosixPath(self._workdir) / cwd) if cwd else self._workdir,
            env=self._environment_of(env),
            timeout_s=timeout_sec,
        )
        result = ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            return_code=done.return_code,
        )
        emit = self._output_callback()
        if emit is not None:
            if result.stdout:
                await emit(result.stdout, "stdout")
            if result.stderr:
                await emit(result.stderr, "stderr")
        return result

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        machine = self._running()
        await in_transfer_pool(upload_file, machine.root, Path(source_path), self._inside(target_path), self._owner())

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        machine = self._running()
        await in_transfer_pool(
            upload_directory, machine.root, Path(source_dir), self._inside(target_dir), self._owner()
        )

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        machine = self._running()
        await in_transfer_pool(
            download_file, machine.root, self._inside(source_path), Path(target_path), self._budget()
        )

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        machine = self._running()
        await in_transfer_pool(
            download_directory, machine.root, self._inside(source_dir), Path(target_dir), self._budget()
        )

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return kind_of(self._running().root, self._inside(path)) == stat.S_IFDIR

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return kind_of(self._running().root, self._inside(path)) == stat.S_IFREG

    @abstractmethod
    def _user_of(self, user: str | int | None) -> str:
        """The user that a command asked for, as process 1 takes it ("": whoever process 1 is)."""

    @abstractmethod
    def _owner(self) -> tuple[int, int] | None:
        """Host ids that uploaded files get, None to leave them."""

    def _adopt_plan(self, plan: Plan | None) -> None:
        """Take over how commands run in the image."""
        if plan is not None:
            result = plan.result
            self._image_env, self._image_user, self._workdir = result.env, result.user, result.workdir
        if self.task_env_config.workdir:
            self._workdir = str(PurePosixPath(self._workdir) / self.task_env_config.workdir)

    async def _open_for_work(self, machine: Machine) -> None:
        """Make the directories that commands and Harbor expect, and hand the machine to the other methods."""
        self._machine = machine
        await in_transfer_pool(self._make_directories, machine.root)
        await self._upload_environment_dir_after_start()

    def _make_directories(self, root: int) -> None:
        try:
            os.close(make_directory(root, self._workdir, self._owner()))
        except OSError as error:
            raise TaskError(
                f"{self.environment_dir}: {self._workdir} cannot be made in the sandbox ({error.strerror}); look at "
                "WORKDIR, [environment] workdir and the links that the Dockerfile makes"
            ) from error
        self._restore_logs(root)

    def _restore_logs(self, root: int) -> None:
        """Let there be log directories that everybody may write to, in place of whatever else has their names."""
        for path in sorted({*self._mount_targets(writable_only=True), *LOG_DIRECTORIES}):
            clear_way_to(root, path, self._owner())
            descriptor = make_directory(root, path, self._owner())
            try:
                os.fchmod(descriptor, 0o777)
            finally:
                os.close(descriptor)

    def _environment_of(self, env: dict[str, str] | None) -> Mapping[str, str]:
        return {"PATH": DEFAULT_PATH, **self._image_env, **(self._merge_env(env) or {})}

    def _inside(self, path: str) -> str:
        return str(PurePosixPath(self._workdir) / path)

    def _budget(self) -> Budget:
        return Budget(self.settings.max_transfer_mb << 20)

    def _running(self) -> Machine:
        if self._machine is None:
            raise SandboxError(f"the sandbox of {self.session_id} is not running")
        return self._machine


def _split_options[OptionsT: SandboxOptions](
    model: type[OptionsT], kwargs: Mapping[str, Any]
) -> tuple[OptionsT, dict[str, Any]]:
    """Our options, validated, and what is meant for Harbor. Raises ConfigError for a name that nobody knows."""
    harbor = set(inspect.signature(BaseEnvironment.__init__).parameters) - {"auto_mounting"}
    rest = {name: value for name, value in kwargs.items() if name in harbor}
    ours = {name: value for name, value in kwargs.items() if name not in harbor and name != "auto_mounting"}
    for name in ours:
        if name not in model.model_fields:
            near = difflib.get_close_matches(name, model.model_fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(model.model_fields))}"
            raise ConfigError(f"the sandbox has no option {name!r}{hint}")
    try:
        return model(**ours), rest
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"sandbox options: {problems}") from None
