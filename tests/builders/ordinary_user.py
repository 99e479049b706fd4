"""Running a command as an ordinary user with ids of its own, without changing the machine's accounts.

A shell with root's rights lays files of the test's own over /etc/passwd, /etc/group, /etc/subuid and /etc/subgid in a
mount namespace that ends with the command. Where the interpreter is in a home directory that only root may enter, it
is shown there alone.
"""

import os
import subprocess
import sys
from pathlib import Path

UID, FIRST_ID = 4321, 200_000
_SCRIPT = """
set -e
home=$1; shift
for file in subuid subgid passwd group; do mount --bind "$home/.accounts/$file" "/etc/$file"; done
if [ -n "$closed" ]; then
  mkdir -p "$home/.python"; mount --bind "$prefix" "$home/.python"
  mount -t tmpfs -o mode=755 none "$closed"; mkdir -p "$prefix"; mount --bind "$home/.python" "$prefix"
fi
cd "$home"
exec setpriv --reuid $uid --regid $uid --clear-groups env -i HOME="$home" PATH="$PATH" PYTHONPATH="$PYTHONPATH" "$@"
"""


def make_home(home: Path, *, with_ids: bool = True) -> None:
    """A home directory for the user, who gets a range of ids or none."""
    accounts = home / ".accounts"
    accounts.mkdir(parents=True)
    for name in ("subuid", "subgid"):
        (accounts / name).write_text(f"ordinary:{FIRST_ID}:65536\n" if with_ids else "")
        Path("/etc", name).touch()
    (accounts / "passwd").write_text(Path("/etc/passwd").read_text() + f"ordinary:x:{UID}:{UID}::{home}:/bin/sh\n")
    (accounts / "group").write_text(Path("/etc/group").read_text() + f"ordinary:x:{UID}:\n")
    home.chmod(0o755)
    os.chown(home, UID, UID)


def run_as_user(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the user of `home`."""
    prefix = Path(sys.base_prefix)
    closed = [parent for parent in prefix.parents if not parent.stat().st_mode & 0o001]
    tests = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "uid": str(UID),
        "closed": str(closed[0]) if closed else "",
        "prefix": str(prefix),
        "PYTHONPATH": tests,
    }
    return subprocess.run(
        ["unshare", "--mount", "bash", "-c", _SCRIPT, "bash", str(home), *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
