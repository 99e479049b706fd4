"""The machine of the local sandbox: an overlay on the sandbox's own root file system, in namespaces of its own."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import SandboxError
from drydock.sandbox import kernel
from drydock.sandbox.confine import AS_MAPPED_ROOT, PYTHON, confinement, write_id_map
from drydock.sandbox.limits import Limits, has_pid_max_per_namespace
from drydock.sandbox.machine import Machine
from drydock.sandbox.network import NAMESERVER, Uplink
from drydock.sandbox.overlay import Overlay, mount_overlay, on_mount_thread, unmount_overlay
from drydock.sandbox.records import write_record
from drydock.sandbox.rootfs import ID_BASE
from drydock.sandbox.spawn import Spawned, spawn
from drydock.sandbox.syscall_filter import filter_program
from drydock.sandbox.transfer import upload_file
from drydock.sandbox.transfer_pool import in_transfer_pool

_SHARED_MEMORY_MB = 64


@dataclass(frozen=True, slots=True)
class Storage:
    """The writable layer: at most `size_mb` in memory; or on disk, in a directory of the machine's or the caller's."""

    size_mb: int
    on_disk: bool = False
    directory: Path | None = None


class LocalMachine(Machine):
    """A confined machine over `lower` (topmost layer first, root file system last)."""

    def __init__(
        self, lower: Sequence[Path], *, state_dir: Path, storage: Storage, limits: Limits, max_output_bytes: int
    ) -> None:
        super().__init__(state_dir, id_base=ID_BASE, max_output_bytes=max_output_bytes)
        self._lower = tuple(lower)
        self._storage = storage
        self._limits = limits
        self._overlay: Overlay | None = None
        self._uplink: Uplink | None = None
        self._own_directory = state_dir / self.name if storage.on_disk and storage.directory is None else None
        self._disk = storage.directory or self._own_directory

    async def connect(self) -> None:
        """Give the machine a network, by which the host's loopback cannot be reached."""
        if self._uplink is None and self.init_pid is not None:
            self._uplink = await Uplink.attach(self.init_pid)
            await in_transfer_pool(self._name_servers, f"nameserver {NAMESERVER}\n")

    async def disconnect(self) -> None:
        """Take the network away again."""
        if self._uplink is not None:
            uplink, self._uplink = self._uplink, None
            await uplink.detach()

    async def _build(self) -> None:
        if self._own_directory is not None:
            self._own_directory.mkdir()
        self._overlay = await on_mount_thread(self._mount)
        self.root = self._overlay.root

    async def _launch(self) -> Spawned:
        return await on_mount_thread(self._spawn)

    def _enter(self, spawned: Spawned) -> None:
        """The overlay's own descriptor stays the root: nothing that the sandbox sees besides can be reached by it."""

    async def _dismantle(self) -> None:
        if self._overlay is not None:
            overlay, self._overlay = self._overlay, None
            await on_mount_thread(unmount_overlay, overlay)
        if self._own_directory is not None:
            await in_transfer_pool(shutil.rmtree, self._own_directory, True)

    async def _halt(self) -> None:
        await self.disconnect()
        await super()._halt()

    async def _restart(self) -> None:
        connected = self._uplink is not None
        await super()._restart()
        if connected:
            await self.connect()

    def _mount(self) -> Overlay:
        return mount_overlay(self.name, self._lower, size_mb=self._storage.size_mb, disk=self._disk)

    def _name_servers(self, text: str) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="resolv-") as file:
            file.write(text)
            file.flush()
            upload_file(self.root, Path(file.name), "/etc/resolv.conf", (ID_BASE, ID_BASE), 0o644)

    def _spawn(self) -> Spawned:
        if self._overlay is None:
            raise SandboxError("the sandbox has no file system")
        return spawn(
            AS_MAPPED_ROOT,
            confinement(str(self._overlay.path), shared_memory_mb=_SHARED_MEMORY_MB),
            [*self._limits.shell_prefix(), PYTHON],
            gate_option="--userns-block-fd",
            filter_program=filter_program(),
            at_gate=self._prepare,
        )

    def _prepare(self, pid: int) -> None:
        write_id_map(pid)
        if has_pid_max_per_namespace():
            _set_pid_max(pid, self._limits.pid_max)
        write_record(self._state_dir, self.name, pid, self._own_directory)


def _set_pid_max(pid: int, value: int) -> None:
    """Write `kernel.pid_max` of the pid namespace of `pid`: only a process inside can, so one is started there."""
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
