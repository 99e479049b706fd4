"""The `local` sandbox: untrusted tasks in namespaces on the driver's machine, without Docker.

Network: a sandbox has loopback and nothing else unless the task asks for a network (`network_mode` public, which is
Harbor's default) *and* the run allows it (`allow_network=True`). Without that permission a task that asks runs
without network, and a warning says so. Host loopback, where the model endpoint listens, is unreachable either way.
An allowlist of hosts cannot be enforced here and Harbor refuses such tasks.
"""

import functools
import logging
import math
import os
from pathlib import Path
from typing import Literal

from harbor.models.task.config import NetworkMode, NetworkPolicy
from pydantic import Field

from drydock.errors import TaskError
from drydock.sandbox.base_images import DEFAULT_BASE_IMAGES, base_directory
from drydock.sandbox.dockerfile import Plan, Run, read_dockerfile
from drydock.sandbox.environment import DEFAULT_PATH, SandboxEnvironment, SandboxOptions
from drydock.sandbox.layer_size import within_size
from drydock.sandbox.layers import ensure_layers
from drydock.sandbox.limits import Limits
from drydock.sandbox.local_machine import LocalMachine, Storage
from drydock.sandbox.rootfs import ID_BASE, require_rootfs
from drydock.sandbox.transfer_pool import in_transfer_pool

_SHOWN_OUTPUT = 2000
_BUILD_MEMORY_MB = 4096
"""Memory of one process of a RUN line, where the task does not ask for more to run in: building often takes more."""

_log = logging.getLogger(__name__)


class LocalOptions(SandboxOptions):
    """Keyword arguments of LocalEnvironment."""

    base_images: dict[str, str] = Field(default_factory=dict)
    """Image name pattern to root file system: `debian` for the built one, or a directory (see `base_images`)."""

    allow_network: bool = False
    """Give a network to the tasks that ask for one, and to RUN lines of Dockerfiles."""

    storage: Literal["memory", "disk"] = "memory"
    """Where a sandbox's writes go. In memory they are bounded by `max_storage_mb` and need no cleaning up; on disk
    only the size of one file is bounded."""

    max_storage_mb: int = Field(default=1024, ge=16)
    """Most that a sandbox can write; a task's smaller `storage_mb` wins."""

    max_layer_mb: int = Field(default=8192, ge=16)
    """Most that one RUN line of a Dockerfile can write to the cache's disk."""

    max_processes: int = Field(default=512, ge=64)
    """Most processes and threads in a sandbox."""

    max_memory_mb: int = Field(default=8192, ge=64)
    """Most private memory of one process; a task's smaller `memory_mb` wins, but not below 4096 in RUN lines."""

    max_cpu_s: int = Field(default=3600, ge=1)
    """Most CPU time of one process; in RUN lines `build_timeout_sec` times `cpus` of the task, where that is less."""


class LocalEnvironment(SandboxEnvironment):
    """Harbor environment of the local sandbox; see `LocalOptions` for its keyword arguments."""

    options_type = LocalOptions
    settings: LocalOptions
    _local: LocalMachine | None = None

    @staticmethod
    def type() -> str:
        return "local"

    async def start(self, force_build: bool) -> None:
        """Bring the sandbox up. Layers are named by content, so `force_build` finds nothing out of date to rebuild."""
        base = require_rootfs(self.settings.cache_dir)
        plan = await in_transfer_pool(self._plan)
        system = self._base(plan, base)
        lower = (system,)
        if plan is not None:
            lower = await ensure_layers(plan, system, self.settings.cache_dir, self._run_in_layer)
        self._adopt_plan(plan)
        machine = self._local = LocalMachine(
            lower,
            state_dir=self.settings.state_dir,
            storage=self._storage(),
            limits=self._limits(),
            max_output_bytes=self.settings.max_output_bytes,
        )
        await machine.start()
        self._machine = machine
        try:
            await self._open_for_work(machine)
            await self._apply_network_policy(self._network_policy)
        except BaseException:
            await self.stop(delete=True)
            raise

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        if self._local is None:
            return
        if network_policy.network_mode != NetworkMode.PUBLIC:
            await self._local.disconnect()
        elif self.settings.allow_network:
            await self._local.connect()
        else:
            _warn_without_network()

    def _plan(self) -> Plan | None:
        file = self.environment_dir / "Dockerfile"
        return read_dockerfile(file) if file.exists() else None

    def _base(self, plan: Plan | None, built_in: Path) -> Path:
        image = plan.base_image if plan else self.task_env_config.docker_image or ""
        where = f"{plan.file}:{plan.from_line}" if plan else f"task of {self.environment_dir}"
        found = base_directory(image, self.settings.base_images, built_in)
        if found is None:
            known = ", ".join([*self.settings.base_images, *DEFAULT_BASE_IMAGES])
            raise TaskError(
                f"{where}: there is no root file system for the image {image}; known are {known}. "
                "Add one with the sandbox option base_images"
            )
        if not found.is_dir():
            raise TaskError(f"{where}: the root file system for {image}, {found}, does not exist")
        return found

    def _storage(self) -> Storage:
        wanted = self.task_env_config.storage_mb or self.settings.max_storage_mb
        size_mb = min(wanted, self.settings.max_storage_mb)
        return Storage(size_mb, on_disk=self.settings.storage == "disk")

    def _limits(self) -> Limits:
        wanted = self._effective_memory_mb or self.settings.max_memory_mb
        return Limits(
            processes=self.settings.max_processes,
            memory_mb=min(wanted, self.settings.max_memory_mb),
            cpu_s=self.settings.max_cpu_s,
            file_mb=self._storage().size_mb,
        )

    def _build_limits(self) -> Limits:
        """Bounds of a RUN line; disk is bounded beside it, for all files together."""
        task = self.task_env_config
        cpu_s = math.ceil(task.build_timeout_sec * (task.cpus or os.cpu_count() or 1))
        return Limits(
            processes=self.settings.max_processes,
            memory_mb=min(self.settings.max_memory_mb, max(self._effective_memory_mb or 0, _BUILD_MEMORY_MB)),
            cpu_s=min(self.settings.max_cpu_s, max(1, cpu_s)),
            file_mb=self.settings.max_layer_mb,
        )

    async def _run_in_layer(self, step: Run, below: tuple[Path, ...], directory: Path) -> None:
        """Carry out a RUN line; its writes become `directory`/upper."""
        where = f"{self.environment_dir / 'Dockerfile'}:{step.line}"
        machine = LocalMachine(
            below,
            state_dir=self.settings.state_dir,
            storage=Storage(self.settings.max_layer_mb, directory=directory),
            limits=self._build_limits(),
            max_output_bytes=self.settings.max_output_bytes,
        )
        await machine.start()
        try:
            if self.settings.allow_network:
                await machine.connect()
            environment = {"PATH": DEFAULT_PATH, **dict(step.env)}
            done = await within_size(
                machine.run_program(step.argv, user=step.user, cwd=step.workdir, env=environment),
                directory / "upper",
                self.settings.max_layer_mb,
                where,
            )
        finally:
            await machine.stop()
        if done.return_code != 0:
            output = (done.stdout + done.stderr).decode(errors="replace").strip()[-_SHOWN_OUTPUT:]
            hint = "" if self.settings.allow_network else " (it ran without network: see the option allow_network)"
            raise TaskError(f"{where}: RUN ended with status {done.return_code}{hint}:\n{output}")

    def _user_of(self, user: str | int | None) -> str:
        return str(user) if user is not None else self._image_user

    def _owner(self) -> tuple[int, int] | None:
        return ID_BASE, ID_BASE


@functools.cache
def _warn_without_network() -> None:
    """Say, once per process, that tasks which ask for a network do not get one."""
    _log.warning("tasks ask for a network and run without one; the sandbox option allow_network=true grants it")
