"""How the local sandbox is confined: the bubblewrap options and the id map.

The user namespace maps the ids inside to a range outside that has nothing else (see `ids`), so root inside is nobody
outside: unwritable sysctls stay unwritable even if a mount were undone. The capabilities kept are those that package
managers and `su`-like tools need; CAP_SETFCAP is not among them (with it, nested user namespaces could be given ids),
nor is any that reaches past the namespaces. /proc/sys and /dev are read-only on top, and the network is an empty
namespace.
"""

from collections.abc import Sequence

from drydock.sandbox.ids import id_range

HOSTNAME = "sandbox"
PYTHON = "/usr/bin/python3"
_EMPTIED_MB = 1024

CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)


def as_mapped_root() -> list[str]:
    """What runs bubblewrap as the id that becomes root of the sandbox; it is never root of the host."""
    base = str(id_range().base)
    return ["setpriv", "--reuid", base, "--regid", base, "--clear-groups", "--"]


def confinement(root: str, *, shared_memory_mb: int, emptied: Sequence[str] = ()) -> list[str]:
    """Bubblewrap options that show `root` as / in namespaces of its own.

    emptied: directories over which an empty file system lies, writable and bounded.
    """
    options = [
        "--unshare-user",
        *("--uid", "0", "--gid", "0"),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
        *("--hostname", HOSTNAME),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"),
        *("--cap-drop", "ALL"),
    ]
    for capability in CAPABILITIES:
        options += ["--cap-add", capability]
    options += ["--bind", root, "/"]
    options += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    options += ["--dev", "/dev", "--perms", "1777", "--size", str(shared_memory_mb << 20), "--tmpfs", "/dev/shm"]
    options += ["--remount-ro", "/dev"]
    for directory in emptied:
        options += ["--perms", "0755", "--size", str(_EMPTIED_MB << 20), "--tmpfs", directory]
    return [*options, "--chdir", "/"]


def write_id_map(pid: int) -> None:
    """Map the sandbox's ids for process `pid`, which waits for it at its gate."""
    line = f"0 {id_range().base} {id_range().count}"
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:  # noqa: PTH123
            file.write(line)
