"""Making an ordinary user's driver root of a user namespace of its own, in which the local sandbox works as for root.

In it, id 0 is the user and ids from 1 are those that /etc/subuid and /etc/subgid give it; newuidmap and newgidmap write
that down. The process can then mount overlays and give files to ids, and stays what it was for everything outside.
Control groups of the machine stay out of its reach, so bounds on a sandbox as a whole are missing (see `limits`).
"""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

from drydock.errors import SandboxUnavailable
from drydock.sandbox.ids import id_range

_WANTED = 65_536
_REMEDY = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"


def enter_user_namespace() -> None:
    """Become root of a user namespace; does nothing for root.

    A process that has threads already cannot: it is started anew from its command line, in the namespace.
    Raises SandboxUnavailable with the remedy where the kernel or the machine's settings do not allow it.
    """
    if os.geteuid() == 0:
        return
    for program in ("newuidmap", "newgidmap"):
        if shutil.which(program) is None:
            raise SandboxUnavailable(f"{program} is missing: run `apt-get install uidmap`, or run as root")
    maps = [_map(Path("/etc/subuid"), os.getuid(), os.getuid()), _map(Path("/etc/subgid"), os.getuid(), os.getgid())]
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        os.execv(sys.executable, [sys.executable, "-m", "drydock.sandbox.rootless", *sys.orig_argv])
    go_read, go_write = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(go_write)
        os._exit(_write_maps(go_read, os.getppid(), maps))
    os.close(go_read)
    try:
        try:
            os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
        except OSError as error:
            raise SandboxUnavailable(
                f"the kernel does not let an ordinary user make a user namespace ({error.strerror}): "
                "sysctl user.max_user_namespaces=10000; on Ubuntu also "
                "sysctl kernel.apparmor_restrict_unprivileged_userns=0; or run as root"
            ) from None
        os.write(go_write, b"1")
    finally:
        os.close(go_write)
        status = os.waitpid(mapper, 0)[1]
    if status != 0:
        raise SandboxUnavailable("newuidmap or newgidmap refused to map the ids of /etc/subuid and /etc/subgid")
    id_range.cache_clear()


def _map(file: Path, uid: int, own: int) -> list[str]:
    """Arguments of newuidmap or newgidmap: id 0 is `own`, 1 and up are the first range long enough in `file`."""
    user = _name_of(uid)
    lines = file.read_text().splitlines() if file.exists() else []
    for line in lines:
        name, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if name in (user, str(uid)) and first.isdecimal() and count.isdecimal() and int(count) >= _WANTED:
            return ["0", str(own), "1", "1", first, str(_WANTED)]
    raise SandboxUnavailable(
        f"{file} gives {user} fewer than {_WANTED} ids in a row: as root, run `{_REMEDY.format(user=user)}`"
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _write_maps(go: int, pid: int, maps: list[list[str]]) -> int:
    """In the child, outside the namespace: write the maps of `pid` when told to; returns the exit status."""
    if not os.read(go, 1):
        return 0
    for program, arguments in zip(("newuidmap", "newgidmap"), maps, strict=True):
        if subprocess.run([program, str(pid), *arguments], check=False).returncode != 0:
            return 1
    return 0


if __name__ == "__main__":
    enter_user_namespace()
    os.execvp(sys.argv[1], sys.argv[1:])
