"""What the local sandbox needs of a machine, each checked by using it where that is possible."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import SandboxUnavailable
from drydock.sandbox import kernel
from drydock.sandbox.confine import AS_MAPPED_ROOT
from drydock.sandbox.rootfs import rootfs_path

_NAMESPACES_REMEDY = (
    "allow user namespaces: sysctl user.max_user_namespaces=10000; on Ubuntu also "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)

_BUILD_REMEDY = "run `drydock sandbox build` (needs mmdebstrap: `apt-get install mmdebstrap`)"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One prerequisite: whether it is met, what was seen, and what to do when it is not."""

    name: str
    ok: bool
    detail: str
    remedy: str


def check_local(cache_dir: Path | None = None) -> list[Requirement]:
    """Check everything that LocalEnvironment needs (30 ms); what only root can try is left out for others."""
    root = os.geteuid() == 0
    built = rootfs_path(cache_dir)
    found = [
        Requirement("root", root, f"uid {os.geteuid()}", "run as root (in a container: with CAP_SYS_ADMIN)"),
        _program("bwrap", "bubblewrap"),
        _program("setpriv", "util-linux"),
    ]
    if root:
        found += [
            _attempt("namespaces", _make_namespaces, _NAMESPACES_REMEDY),
            _attempt("overlay mount", _mount_overlay, "give CAP_SYS_ADMIN to the container; `modprobe overlay`"),
            _attempt("path resolution", _resolve, "run Linux 5.6 or later"),
        ]
    return [*found, Requirement("root file system", built.is_dir(), str(built), _BUILD_REMEDY)]


def _program(name: str, package: str) -> Requirement:
    path = shutil.which(name)
    return Requirement(name, path is not None, path or "not found", f"apt-get install {package}")


def _attempt(name: str, action: Callable[[], str], remedy: str) -> Requirement:
    try:
        return Requirement(name, True, action(), remedy)
    except (OSError, SandboxUnavailable, subprocess.SubprocessError) as error:
        return Requirement(name, False, str(error), remedy)


def _make_namespaces() -> str:
    """Let bubblewrap make the namespaces, as the id that it runs under."""
    options = ["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"]
    command = [*AS_MAPPED_ROOT, "bwrap", *options, "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd="/")
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or "refused")
    return "allowed"


def _mount_overlay() -> str:
    """Mount an overlay on a throw-away directory, in a child with a mount namespace of its own."""
    with tempfile.TemporaryDirectory() as directory:
        script = (
            'cd "$1" && mount -t tmpfs none . && cd "$1" && mkdir lower upper work root && '
            "mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work,volatile root"
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
