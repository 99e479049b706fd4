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
from drydock.sandbox.rootfs import rootfs_path


@dataclass(frozen=True, slots=True)
class Requirement:
    """One prerequisite: whether it is met, what was seen, and what to do when it is not."""

    name: str
    ok: bool
    detail: str
    remedy: str


def check_local(cache_dir: Path | None = None) -> list[Requirement]:
    """Check everything that LocalEnvironment needs; takes a few milliseconds."""
    root = os.geteuid() == 0
    built = rootfs_path(cache_dir)
    return [
        Requirement("root", root, f"uid {os.geteuid()}", "run as root (in a container: with CAP_SYS_ADMIN)"),
        _program("bwrap", "bubblewrap"),
        _program("setpriv", "util-linux"),
        _attempt("user namespaces", _make_user_namespace, "enable user namespaces (sysctl user.max_user_namespaces)"),
        _attempt("overlay mount", _mount_overlay, "run as root with CAP_SYS_ADMIN; `modprobe overlay`"),
        _attempt("path resolution", _resolve, "run Linux 5.6 or later"),
        Requirement(
            "root file system", built.is_dir(), str(built), "run `drydock sandbox build` (needs mmdebstrap: `apt-get "
            "install mmdebstrap`)",
        ),
    ]  # fmt: skip


def _program(name: str, package: str) -> Requirement:
    path = shutil.which(name)
    return Requirement(name, path is not None, path or "not found", f"apt-get install {package}")


def _attempt(name: str, action: Callable[[], str], remedy: str) -> Requirement:
    try:
        return Requirement(name, True, action(), remedy)
    except (OSError, SandboxUnavailable, subprocess.SubprocessError) as error:
        return Requirement(name, False, str(error), remedy)


def _make_user_namespace() -> str:
    subprocess.run(["unshare", "--user", "true"], check=True, capture_output=True, timeout=10)
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
