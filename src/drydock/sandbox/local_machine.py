"""The machine of the local sandbox: an overlay on the sandbox's own root file system, in namespaces of its own."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drydock.errors import DeadlineExceeded, SandboxError
from drydock.sandbox import kernel
from drydock.sandbox.channel import Completed
from drydock.sandbox.confine import PYTHON, as_mapped_root, confinement, write_id_map
from drydock.sandbox.control_groups import ControlGroup, GroupLimits, group_parents
from drydock.sandbox.disk_bound import DiskBound
from drydock.sandbox.ids import id_range, in_initial_user_namespace
from drydock.sandbox.limits import Limits, has_pid_max_per_namespace
from drydock.sandbox.machine import Machine
from drydock.sandbox.network import NAMESERVER, Uplink
from drydock.sandbox.overlay import Overlay, mount_overlay, on_mount_thread, seal, unmount_overlay
from drydock.sandbox.routes import cut_off
from drydock.sandbox.spawn import Spawned, spawn
from drydock.sandbox.syscall_filter import filter_program
from drydock.sandbox.transfer import create_file, make_directory
from drydock.sandbox.transfer_pool import in_transfer_pool

SHARED_MEMORY_MB = 64
"""Size of /dev/shm."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The writable layer: at most `size_mb` in memory; or on disk, in a directory of the machine's or the caller's."""

    size_mb: int
    on_disk: bool = False
    directory: Path | None = None


class LocalMachine(Machine):
    """A confined machine over `lower` (topmost layer first, root file system last)."""

    def __init__(
        self,
        lower: Sequence[Path],
        *,
        state_dir: Path,
        storage: Storage,
        limits: Limits,
        group_limits: GroupLimits,
        max_output_bytes: int,
        emptied: Sequence[str] = (),
    ) -> None:
        """emptied: directories over which an empty file system lies."""
        super().__init__(state_dir, id_base=id_range().base, max_output_bytes=max_output_bytes)
        self._lower = tuple(lower)
        self._storage = storage
        self._limits = limits
        self._group_limits = group_limits
        self._emptied = tuple(emptied)
        self._group: ControlGroup | None = None
        self._overlay: Overlay | None = None
        self._uplink: Uplink | None = None
        self._watch: asyncio.Task[None] | None = None
        self._sealed: list[str] = []
        self._own_directory = state_dir / self.name if storage.on_disk and storage.directory is None else None
        self._disk = storage.directory or self._own_directory

    async def run(
        self, command: str, *, user: str, cwd: str, env: Mapping[str, str], timeout_s: float | None
    ) -> Completed:
        done = await super().run(command, user=user, cwd=cwd, env=env, timeout_s=timeout_s)
        if done.return_code == 128 + signal.SIGKILL and self._group is not None and self._group.new_oom_kills():
            note = f"\nkilled: the sandbox used more memory than its {self._group_limits.memory_mb} MB\n"
            return Completed(done.return_code, done.stdout, done.stderr + note.encode())
        return done

    async def _watch_disk(self, directory: Path) -> None:
        """Kill what runs, again and again, while the files on disk take more than they may."""
        bound = DiskBound(directory, self._storage.size_mb)
        while True:
            await asyncio.sleep(bound.pause_s)
            with contextlib.suppress(OSError, SandboxError, DeadlineExceeded):  # then the next look tries again
                if await bound.excess() is not None:
                    await self.kill_processes()

    async def connect(self) -> None:
        """Give the machine a network, by which the host's loopback cannot be reached."""
        if self._uplink is None and self.init_pid is not None:
            await in_transfer_pool(cut_off, self.init_pid)
            self._uplink = await Uplink.attach(self.init_pid)
            await in_transfer_pool(self._name_servers, f"nameserver {NAMESERVER}\n")

    async def disconnect(self) -> None:
        """Take the network away again."""
        if self._uplink is not None:
            uplink, self._uplink = self._uplink, None
            await uplink.detach()

    async def make_read_only(self, path: str) -> None:
        """Let nobody inside change the directory `path` from now on; transfers of the driver still can."""
        if self.init_pid is None:
            raise SandboxError("the sandbox is not running")
        await on_mount_thread(seal, self.init_pid, path)
        self._sealed.append(path)

    def _directory_on_disk(self) -> Path | None:
        return self._own_directory

    async def _build(self) -> None:
        if self._own_directory is not None:
            self._own_directory.mkdir(mode=0o700)
        self._overlay = await on_mount_thread(self._mount)
        self.root = self._overlay.root
        if self._own_directory is not None:
            self._watch = asyncio.create_task(self._watch_disk(self._own_directory / "upper"))

    async def _launch(self) -> Spawned:
        await in_transfer_pool(self._make_group)
        return await on_mount_thread(self._spawn)

    def _enter(self, spawned: Spawned) -> None:
        """The overlay's own descriptor stays the root: nothing that the sandbox sees besides can be reached by it."""

    async def _stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        await super()._stop()

    async def _dismantle(self) -> None:
        if self._overlay is not None:
            overlay, self._overlay = self._overlay, None
            await on_mount_thread(unmount_overlay, overlay)
        if self._own_directory is not None:
            await in_transfer_pool(shutil.rmtree, self._own_directory, True)

    async def _halt(self) -> None:
        await self.disconnect()
        await super()._halt()
        if self._group is not None:
            group, self._group = self._group, None
            await in_transfer_pool(group.remove)

    async def _restart(self) -> None:
        connected = self._uplink is not None
        await super()._restart()
        for path in self._sealed:
            if self.init_pid is not None:
                await on_mount_thread(seal, self.init_pid, path)
        if connected:
            await self.connect()

    def _mount(self) -> Overlay:
        return mount_overlay(self.name, self._lower, size_mb=self._storage.size_mb, disk=self._disk)

    def _name_servers(self, text: str) -> None:
        directory = make_directory(self.root, "/etc", (self.id_base, self.id_base))
        try:
            with os.fdopen(create_file(directory, "resolv.conf"), "w") as file:
                file.write(text)
                os.fchown(file.fileno(), self.id_base, self.id_base)
                os.fchmod(file.fileno(), 0o644)
        finally:
            os.close(directory)

    def _make_group(self) -> None:
        group = ControlGroup(self.name, group_parents())
        if self._claim is not None:
            self._claim.update(groups=group.directories)
        self._group = group
        processes = None if has_pid_max_per_namespace() else self._limits.processes
        group.create(replace(self._group_limits, processes=processes))

    def _spawn(self) -> Spawned:
        if self._overlay is None:
            raise SandboxError("the sandbox has no file system")
        return spawn(
            as_mapped_root(),
            confinement(str(self._overlay.path), shared_memory_mb=SHARED_MEMORY_MB, emptied=self._emptied),
            [*self._limits.shell_prefix(), PYTHON],
            gate_option="--userns-block-fd",
            filter_program=filter_program(),
            at_gate=self._prepare,
            label=self.name,
        )

    def _prepare(self, pid: int) -> None:
        write_id_map(pid)
        if has_pid_max_per_namespace():
            _set_pid_max(pid, self._limits.pid_max)
        self._record(pid)
        if self._group is not None:
            self._group.add(pid)


def _set_pid_max(pid: int, value: int) -> None:
    """Write `kernel.pid_max` of the pid namespace of `pid`: only a process inside can, so one is started there.

    In the initial user namespace this thread goes in and comes back; elsewhere it could not, and nsenter goes.
    """
    if not in_initial_user_namespace():
        write = ["sh", "-c", f"echo {value} > /proc/sys/kernel/pid_max"]
        done = subprocess.run(["nsenter", f"--pid=/proc/{pid}/ns/pid", *write], capture_output=True, check=False)
        if done.returncode != 0:
            raise SandboxError(f"the limit on processes could not be set: {done.stderr.decode().strip()}")
        return
    inside = os.pidfd_open(pid)
    own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.setns(inside, kernel.CLONE_NEWPID)
        try:
            script = f"echo {value} > /proc/sys/kernel/pid_max"
            writer = os.posix_spawn("/bin/sh", ["sh", "-c", script], {})
        finally:
            kernel.setns(own, kernel.CLONE_NEWPID)
        if os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) != 0:
            raise SandboxError("the limit on processes could not be set")
    finally:
        os.close(inside)
        os.close(own)
