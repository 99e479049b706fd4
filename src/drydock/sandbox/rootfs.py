"""The sandbox's own Debian root file system, built once from the distribution's packages.

Nothing of the host is in it: neither files nor users nor configuration, apart from the package sources that the
machine itself uses for this Debian release. Every inode belongs to the sandbox's id range (see `ids`), so
"root" inside owns its system and is nobody outside. The directory is named by the hash of its recipe and appears
by one rename: either it is complete, or it is not there.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from drydock.errors import SandboxError, SandboxUnavailable
from drydock.sandbox.ids import id_range
from drydock.sandbox.locations import default_cache_dir
from drydock.sandbox.transfer import create_file, make_directory

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "procps", "python3-minimal")
UNPACKED_WITHOUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
HARBOR_DIRECTORIES = ("logs/agent", "logs/artifacts", "logs/verifier")
_LAYOUT_VERSION = 2


def rootfs_path(cache_dir: Path | None = None) -> Path:
    """Where the root file system of this version of Drydock is, whether or not it has been built."""
    recipe = [SUITE, PACKAGES, UNPACKED_WITHOUT, HARBOR_DIRECTORIES, id_range().base, _LAYOUT_VERSION]
    digest = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
    return (cache_dir or default_cache_dir()) / "rootfs" / f"{SUITE}-{digest}"


def require_rootfs(cache_dir: Path | None = None) -> Path:
    """The built root file system, or SandboxUnavailable naming the command that builds it."""
    path = rootfs_path(cache_dir)
    if not path.is_dir():
        raise SandboxUnavailable(
            f"the sandbox's root file system is not built ({path}): run `make setup` or `drydock sandbox build`"
        )
    return path


def build_rootfs(cache_dir: Path | None = None) -> Path:
    """Build the root file system unless it is there (about 20 s, 160 MB) and return its path.

    Raises SandboxUnavailable when not root or when mmdebstrap is missing, SandboxError when it fails.
    """
    path = rootfs_path(cache_dir)
    if path.is_dir():
        return path
    if os.geteuid() != 0:
        raise SandboxUnavailable("building the sandbox's root file system needs root: run it with sudo")
    if shutil.which("mmdebstrap") is None:
        raise SandboxUnavailable("mmdebstrap is missing: run `apt-get install mmdebstrap`")
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_dir():
            for leftover in path.parent.glob(f".{path.name}.tmp-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.tmp-", dir=path.parent))
            try:
                _bootstrap(staging)
                _shift_ids(staging)
                root = os.open(staging, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    furnish(root)
                finally:
                    os.close(root)
                staging.chmod(0o755)
                staging.rename(path)
            except BaseException:
                shutil.rmtree(staging, ignore_errors=True)
                raise
    return path


def _bootstrap(target: Path) -> None:
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNPACKED_WITHOUT]
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}", *options]
    with _machine_sources() as sources:
        done = subprocess.run([*command, SUITE, str(target), *sources], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise SandboxError(f"mmdebstrap failed with status {done.returncode} while building {target.name}:\n{tail}")


def machine_sources(etc_apt: Path = Path("/etc/apt")) -> tuple[list[str], list[str]]:
    """The machine's own apt sources for this release: (one-line entries, deb822 stanzas), main component only."""
    lines: list[str] = []
    stanzas: list[str] = []
    for file in [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))]:
        if not file.is_file():
            continue
        text = file.read_text(errors="replace")
        if file.suffix == ".sources":
            stanzas += [stanza for stanza in re.split(r"\n\s*\n", text) if _offers_release(stanza)]
        elif file.suffix == ".list" or file.name == "sources.list":
            pattern = rf"deb\s+(\[[^\]]*\]\s+)?\S+\s+{SUITE}(-updates|-security)?\s+(.*\s)?main(\s.*)?"
            lines += [line.strip() for line in text.splitlines() if re.fullmatch(pattern, line.strip())]
    return lines, stanzas


def _offers_release(stanza: str) -> bool:
    fields = {
        name.strip().lower(): value.split()
        for name, _, value in (line.partition(":") for line in stanza.splitlines() if not line.startswith("#"))
    }
    suites = {SUITE, f"{SUITE}-updates", f"{SUITE}-security"}
    return (
        "deb" in fields.get("types", [])
        and bool(fields.get("suites"))
        and suites.issuperset(fields["suites"])
        and "main" in fields.get("components", [])
        and fields.get("enabled", ["yes"]) != ["no"]
    )


@contextlib.contextmanager
def _machine_sources() -> Iterator[list[str]]:
    lines, stanzas = machine_sources()
    with tempfile.TemporaryDirectory() as directory:
        found: list[str] = []
        if lines:
            one_line = Path(directory) / "machine.list"
            one_line.write_text("\n".join(lines) + "\n")
            found.append(str(one_line))
        if stanzas:
            deb822 = Path(directory) / "machine.sources"
            deb822.write_text("\n\n".join(stanza.strip() for stanza in stanzas) + "\n")
            found.append(str(deb822))
        yield found


def furnish(root: int) -> None:
    """Add Harbor's directories to a root directory and replace what describes the machine that built it."""
    owner = (id_range().base, id_range().base)
    for name in HARBOR_DIRECTORIES:
        directory = make_directory(root, name, owner)
        os.fchmod(directory, 0o777)
        os.close(directory)
    etc = make_directory(root, "etc", owner)
    for name, text in (
        ("hostname", "sandbox\n"),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        ("resolv.conf", ""),
    ):
        with os.fdopen(create_file(etc, name), "w") as file:
            file.write(text)
            os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), 0o644)
    os.close(etc)


def _shift_ids(root: Path) -> None:
    """Give every inode, once, to the sandbox's id range; chown clears special bits of the mode, so it is set again."""

    base = id_range().base
    done: set[int] = set()

    def shift(path: str) -> None:
        entry = os.lstat(path)
        if entry.st_ino in done:
            return
        done.add(entry.st_ino)
        os.lchown(path, entry.st_uid + base, entry.st_gid + base)
        if not os.path.islink(path):  # noqa: PTH114
            os.chmod(path, entry.st_mode & 0o7777)  # noqa: PTH101

    shift(str(root))
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            shift(f"{directory}/{name}")
