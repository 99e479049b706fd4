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
import stat
from pathlib import Path
from typing import Literal

from harbor.environments.capabilities import EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode
from pydantic import Field

from drydock.errors import SandboxError, TaskError
from drydock.sandbox.confine import PYTHON
from drydock.sandbox.control_groups import GroupLimits, available
from drydock.sandbox.dockerfile_plan import Run
from drydock.sandbox.environment import DEFAULT_PATH, SandboxEnvironment, SandboxOptions
from drydock.sandbox.ids import id_range
from drydock.sandbox.images import read_definition
from drydock.sandbox.layer_size import within_size
from drydock.sandbox.layers import Stack, ensure_layers, release_layers
from drydock.sandbox.limits import Limits
from drydock.sandbox.local_machine import SHARED_MEMORY_MB, LocalMachine, Storage
from drydock.sandbox.machine import SHELL
from drydock.sandbox.rootfs import require_rootfs
from drydock.sandbox.system_store import hold_system, release_system
from drydock.sandbox.transfer import kind_of
from drydock.sandbox.transfer_pool import in_transfer_pool

_SHOWN_OUTPUT = 2000
_LEAST_MEMORY_MB = 32
"""Below, process 1 of a sandbox has no room."""

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
    """Where a sandbox's writes go. In memory they cannot exceed `max_storage_mb` and need no cleaning up; on disk they
    are measured, and what runs is killed when they have exceeded it."""

    max_storage_mb: int = Field(default=1024, ge=16)
    """Most that a sandbox can write; a task's smaller `storage_mb` wins."""

    max_layer_mb: int = Field(default=8192, ge=16)
    """Most that one RUN line of a Dockerfile can write to the cache's disk."""

    max_processes: int = Field(default=512, ge=64)
    """Most processes and threads in a sandbox."""

    max_memory_mb: int = Field(default=8192, ge=64)
    """Most memory of a sandbox, and private memory of one process; a task's smaller `memory_mb` wins, but not below
    4096 in RUN lines. Where the driver can make no control groups, it is a bound on each process only."""

    max_cpus: float | None = Field(default=None, gt=0)
    """Most processors that a sandbox keeps busy; a task's smaller `cpus` wins. None leaves it to the task."""

    max_cpu_s: int = Field(default=3600, ge=1)
    """Most CPU time of one process; in RUN lines `build_timeout_sec` times `cpus` of the task, where that is less."""


class LocalEnvironment(SandboxEnvironment):
    """Harbor environment of the local sandbox; see `LocalOptions` for its keyword arguments."""

    options_type = LocalOptions
    settings: LocalOptions
    _local: LocalMachine | None = None
    _stack: Stack = ()
    _system: Path | None = None

    @staticmethod
    def type() -> str:
        return "local"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities | None:
        return EnvironmentResourceCapabilities(
            fractional_cpus=True, cpu_limit=available("cpu"), memory_limit=available("memory")
        )

    async def start(self, force_build: bool) -> None:
        """Bring the sandbox up. Layers are named by content, so `force_build` finds nothing out of date to rebuild."""
        cache_dir = self.settings.cache_dir
        require_rootfs(cache_dir)
        definition = await in_transfer_pool(
            read_definition,
            self.environment_dir,
            self.task_env_config.docker_image,
            self.settings.base_images,
            cache_dir,
        )
        self._stack = (definition.system,)
        self._system = hold_system(definition.system, cache_dir)
        try:
            if definition.layers is not None:
                self._stack = await ensure_layers(definition.layers, cache_dir, self._run_in_layer)
            self._adopt_plan(definition.plan)
            machine = self._local = LocalMachine(
                self._stack,
                state_dir=self.settings.state_dir,
                storage=self._storage(),
                limits=self._limits(),
                group_limits=self._group_limits(),
                max_output_bytes=self.settings.max_output_bytes,
            )
            await self._start_machine(machine)
            self._machine = machine
            await self._open_for_work(machine)
            await self._check_image(machine)
            await self._apply_network_policy(self._network_policy)
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        try:
            await super().stop(delete)
        finally:
            stack, self._stack = self._stack, ()
            release_layers(stack, self.settings.cache_dir)
            system, self._system = self._system, None
            release_system(system)

    async def make_read_only(self, path: str) -> None:
        """Let nobody in the sandbox, root included, change the directory `path` from now on."""
        if self._local is None:
            raise SandboxError(f"the sandbox of {self.session_id} is not running")
        await self._local.make_read_only(path)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        if self._local is None:
            return
        if network_policy.network_mode != NetworkMode.PUBLIC:
            await self._local.disconnect()
        elif self.settings.allow_network:
            await self._local.connect()
        else:
            _warn_without_network()

    async def _start_machine(self, machine: LocalMachine) -> None:
        """Start it. Raises TaskError where the task leaves it no memory or lacks the program that process 1 is."""
        wanted = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        if wanted and wanted < _LEAST_MEMORY_MB:
            raise TaskError(
                f"{self.environment_dir.parent / 'task.toml'}: environment.memory_mb is {wanted:g}, in which no "
                f"sandbox starts; give at least {_LEAST_MEMORY_MB}"
            )
        try:
            await machine.start()
        except SandboxError as error:
            if f"{PYTHON}: not found" in str(error):
                raise self._lacks(PYTHON) from error
            raise

    async def _check_image(self, machine: LocalMachine) -> None:
        """Raise TaskError for an image without a shell, or with a USER as whom nothing can be run."""
        if kind_of(machine.root, SHELL) != stat.S_IFREG:
            raise self._lacks(SHELL)
        if self._image_user in ("", "root", "0"):
            return
        done = await machine.run_program([SHELL, "-c", ":"], user=self._image_user, cwd="/", env={})
        if done.return_code != 0:
            raise TaskError(
                f"{self.environment_dir / 'Dockerfile'}: USER is {self._image_user!r}, as whom no command can be run "
                f"({done.stderr.decode(errors='replace').strip()}); make that user before (RUN useradd)"
            )

    def _lacks(self, program: str) -> TaskError:
        return TaskError(
            f"{self.environment_dir}: the image has no {program}, which every sandbox needs; do not remove it in the "
            "Dockerfile"
        )

    def _storage(self) -> Storage:
        wanted = self.task_env_config.storage_mb or self.settings.max_storage_mb
        size_mb = min(wanted, self.settings.max_storage_mb)
        return Storage(size_mb, on_disk=self.settings.storage == "disk")

    def _limits(self) -> Limits:
        return Limits(
            processes=self.settings.max_processes,
            memory_mb=self._memory_mb(),
            cpu_s=self.settings.max_cpu_s,
            file_mb=self._storage().size_mb,
        )

    def _group_limits(self) -> GroupLimits:
        in_memory_mb = SHARED_MEMORY_MB + (self._storage().size_mb if self.settings.storage == "memory" else 0)
        return GroupLimits(memory_mb=self._memory_mb() + in_memory_mb, cpus=self._cpus())

    def _memory_mb(self) -> int:
        wanted = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        return min(wanted or self.settings.max_memory_mb, self.settings.max_memory_mb)

    def _cpus(self) -> float | None:
        wanted = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        bounds = [bound for bound in (wanted, self.settings.max_cpus) if bound]
        return min(bounds, default=None)

    def _build_limits(self) -> Limits:
        """Bounds of a RUN line; disk is bounded beside it, for all files together."""
        task = self.task_env_config
        cpu_s = math.ceil(task.build_timeout_sec * (task.cpus or os.cpu_count() or 1))
        return Limits(
            processes=self.settings.max_processes,
            memory_mb=min(self.settings.max_memory_mb, max(self._memory_mb(), _BUILD_MEMORY_MB)),
            cpu_s=min(self.settings.max_cpu_s, max(1, cpu_s)),
            file_mb=self.settings.max_layer_mb,
        )

    async def _run_in_layer(self, step: Run, below: Stack, directory: Path) -> None:
        """Carry out a RUN line; its writes become `directory`/upper."""
        where = f"{self.environment_dir / 'Dockerfile'}:{step.line}"
        limits = self._build_limits()
        machine = LocalMachine(
            below,
            state_dir=self.settings.state_dir,
            storage=Storage(self.settings.max_layer_mb, directory=directory),
            limits=limits,
            group_limits=GroupLimits(memory_mb=(limits.memory_mb or 0) + SHARED_MEMORY_MB, cpus=self._cpus()),
            max_output_bytes=self.settings.max_output_bytes,
            emptied=step.emptied,
        )
        online = self.settings.allow_network and not step.offline
        await machine.start()
        try:
            if online:
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
            hint = "" if online else " (it ran without network: see the option allow_network)"
            raise TaskError(f"{where}: RUN ended with status {done.return_code}{hint}:\n{output}")

    def _user_of(self, user: str | int | None) -> str:
        return str(user) if user is not None else self._image_user

    def _owner(self) -> tuple[int, int] | None:
        return id_range().base, id_range().base


@functools.cache
def _warn_without_network() -> None:
    """Say, once per process, that tasks which ask for a network do not get one."""
    _log.warning("tasks ask for a network and run without one; the sandbox option allow_network=true grants it")
