"""What the local sandbox needs of a machine, each checked by using it where that is possible."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from drydock.errors import SandboxUnavailable
from drydock.finding import Finding, Level
from drydock.sandbox import kernel
from drydock.sandbox.confine import as_mapped_root
from drydock.sandbox.control_groups import available, group_parents
from drydock.sandbox.ids import id_range, in_initial_user_namespace
from drydock.sandbox.limits import has_pid_max_per_namespace
from drydock.sandbox.locations import default_cache_dir
from drydock.sandbox.rootfs import rootfs_path
from drydock.sandbox.rootless import enter_user_namespace
from drydock.sandbox.syscall_filter import filter_program

_NAMESPACES_REMEDY = (
    "allow user namespaces: sysctl user.max_user_namespaces=10000; on Ubuntu also "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
_BUILD_REMEDY = (
    "run `drydock sandbox build` (needs mmdebstrap: `apt-get install mmdebstrap`; or give it a tarball: --tarball FILE)"
)
_GROUPS_REMEDY = (
    "run as root outside a container; as an ordinary user start the driver with `systemd-run --user --scope`; "
    "in a container make /sys/fs/cgroup writable"
)
_WHO_NEEDS_IT = "only runs with allow_network=true need it"
_SCARCE_DISK_GB = 5


def check_local(cache_dir: Path | None = None) -> list[Finding]:
    """Check everything that LocalEnvironment needs (50 ms), for an ordinary user in a user namespace of its own."""
    found = [_program("bwrap", "bubblewrap"), _program("setpriv", "util-linux")]
    cache_dir = cache_dir or default_cache_dir()
    found += _as_root(cache_dir) if os.geteuid() == 0 else _as_user(cache_dir)
    return [*found, _system_calls(), _network(), _disk(cache_dir)]


def _as_root(cache_dir: Path) -> list[Finding]:
    """The checks that mount and make namespaces, or look for what has the sandbox's ids."""
    ids = _attempt("ids", _ids, "see /etc/subuid and /etc/subgid")
    found = [
        ids,
        _attempt("namespaces", _make_namespaces, _NAMESPACES_REMEDY),
        _attempt("overlay mount", _mount_overlay, "give CAP_SYS_ADMIN to the container; `modprobe overlay`"),
        _attempt("path resolution", _resolve, "run Linux 5.6 or later"),
        _bound_on("memory", "a bound on memory holds for each process only", available("memory")),
        _bound_on("cpu", "`cpus` of a task has no effect", available("cpu")),
        _bound_on(
            "processes",
            "the bound holds for each user id of a sandbox, not for all of them together",
            has_pid_max_per_namespace() or available("pids"),
        ),
    ]
    if ids.ok:
        found.append(_root_file_system(rootfs_path(cache_dir)))
    return found


def _as_user(cache_dir: Path) -> list[Finding]:
    """The same, by a child that enters a user namespace first."""
    script = "import sys; from drydock.sandbox.requirements import print_as_user; print_as_user(sys.argv[1])"
    command = [sys.executable, "-c", script, str(cache_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    try:
        return [Finding(**{**item, "level": Level(item["level"])}) for item in json.loads(done.stdout)]
    except (ValueError, TypeError):
        detail = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return [Finding("user namespace", Level.FAIL, detail, "run as root")]


def print_as_user(cache_dir: str) -> None:
    """Print the findings of an ordinary user as JSON; it runs in a process of its own."""
    try:
        enter_user_namespace()
    except SandboxUnavailable as error:
        found = [Finding("user namespace", Level.FAIL, str(error), "see there; or run as root")]
    else:
        found = [Finding("user namespace", Level.PASS, "an ordinary user's driver can have one")]
        found += _as_root(Path(cache_dir))
    print(json.dumps([asdict(item) for item in found]))


def _root_file_system(path: Path) -> Finding:
    return Finding("root file system", Level.PASS if path.is_dir() else Level.FAIL, str(path), _BUILD_REMEDY)


def _program(name: str, package: str) -> Finding:
    path = shutil.which(name)
    return Finding(name, Level.PASS if path else Level.FAIL, path or "not found", f"apt-get install {package}")


def _attempt(name: str, action: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(name, Level.PASS, action(), remedy)
    except (OSError, SandboxUnavailable, subprocess.SubprocessError) as error:
        return Finding(name, Level.FAIL, str(error), remedy)


def _bound_on(what: str, otherwise: str, there: bool) -> Finding:
    name = f"bound on {what}"
    if there:
        places = ", ".join(str(p.directory) for p in group_parents() if what in p.controllers)
        return Finding(name, Level.PASS, f"of a whole sandbox{f', by groups in {places}' if places else ''}")
    return Finding(name, Level.WARN, otherwise, _GROUPS_REMEDY)


def _system_calls() -> Finding:
    if filter_program() is not None:
        return Finding("system call filter", Level.PASS, "on")
    return Finding("system call filter", Level.WARN, "not on this processor: system calls are not filtered")


def _network() -> Finding:
    path = shutil.which("slirp4netns")
    if path is not None and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return Finding("network", Level.WARN, "no access to /dev/net/tun", f"`chmod 666 /dev/net/tun`; {_WHO_NEEDS_IT}")
    remedy = f"apt-get install slirp4netns; {_WHO_NEEDS_IT}"
    return Finding("network", Level.PASS if path else Level.WARN, path or "slirp4netns not found", remedy)


def _disk(cache_dir: Path) -> Finding:
    place = cache_dir
    while not place.exists():
        place = place.parent
    left_gb = shutil.disk_usage(place).free >> 30
    level = Level.PASS if left_gb >= _SCARCE_DISK_GB else Level.WARN
    return Finding("disk", level, f"{left_gb} GB left for {cache_dir}", "`drydock sandbox prune` deletes old layers")


def _ids() -> str:
    ids = id_range()
    where = "" if in_initial_user_namespace() else " of a user namespace"
    return f"ids of a sandbox are {ids.base} to {ids.base + ids.count - 1}{where}"


def _make_namespaces() -> str:
    """Let bubblewrap make the namespaces, as the id that it runs under."""
    options = ["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"]
    command = [*as_mapped_root(), "bwrap", *options, "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd="/")
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or "refused")
    return "allowed"


def _mount_overlay() -> str:
    """Mount an overlay on a throw-away directory, in a child with a mount namespace of its own."""
    options = "lowerdir=lower,upperdir=upper,workdir=work,volatile"
    if not in_initial_user_namespace():
        options += ",userxattr"
    with tempfile.TemporaryDirectory() as directory:
        script = (
            'cd "$1" && mount -t tmpfs none . && cd "$1" && mkdir lower upper work root && '
            f"mount -t overlay none -o {options} root"
        )
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", directory], capture_output=True, text=True, timeout=10
        )
        if done.returncode != 0:
            raise OSError(done.stderr.strip() or "refused")
    return "works"


def _resolve() -> str:
    descriptor = os.open("/", os.O_PATH)
    try:
        os.close(kernel.openat2(descriptor, "proc", os.O_PATH, 0, kernel.Resolve.IN_ROOT))
    finally:
        os.close(descriptor)
    return "openat2 works"
