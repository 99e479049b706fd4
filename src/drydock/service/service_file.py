"""Where the service of a state folder is: `service.json` beside its lock.

The lock says whether a service runs, the file says which process it is and where it listens (`url` is null until it
does). A file without a held lock is what a killed service left behind and means nothing; that holds for `token` too,
which is there for a service that a run has started for itself.
"""

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drydock.atomic import replace_file
from drydock.errors import UserError

logger = logging.getLogger(__name__)

SERVICE_FILE = "service.json"
LOCK_FILE = "service.lock"
TOKEN_FILE = "token"


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service that holds its state folder. started_at: seconds since 1970; url: None while it is starting."""

    pid: int
    started_at: float
    url: str | None


class OwnedFolder:
    """A state folder that this process has locked."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / SERVICE_FILE
        self._started_at = time.time()
        self.say(None)

    def say(self, url: str | None) -> None:
        """Writes down where the service listens."""
        said = {"pid": os.getpid(), "started_at": self._started_at, "url": url}
        with replace_file(self._path, durable=False) as temporary:
            temporary.write_text(json.dumps(said))

    def leave(self) -> None:
        """Nothing is left to find."""
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def owned(state_dir: Path) -> Iterator[OwnedFolder]:
    """The state folder, made and locked against a second service. Raises UserError."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (state_dir / LOCK_FILE).open("w")
    except OSError as error:
        raise UserError(f"the state folder {state_dir} cannot be used: {error}; name another") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another service runs on {state_dir}: stop it or name another state folder") from error
        folder = OwnedFolder(state_dir)
        try:
            yield folder
        finally:
            folder.leave()


def running_service(state_dir: Path) -> RunningService | None:
    """The service that runs on the folder, None when none does. Raises UserError for a folder that no service had."""
    try:
        lock = (state_dir / LOCK_FILE).open("r")
    except FileNotFoundError:
        raise UserError(f"{state_dir} is not the state folder of a service: start one there first") from None
    except OSError as error:
        raise UserError(f"the state folder {state_dir} cannot be read: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _said(state_dir)
        return None


@contextlib.contextmanager
def kept_token(state_dir: Path, token: str) -> Iterator[None]:
    """Keeps a token that nobody was told in a file that only its owner can read, while the block runs.

    So whoever started a run can ask the service that the run has for itself (`drydock jobs --state-dir`). Where the
    file cannot be written, they cannot, and that is all.
    """
    file = state_dir / TOKEN_FILE
    try:
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, token.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning("`drydock jobs --state-dir` will need a token: %s cannot be written: %s", file, error.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def token_of(state_dir: Path) -> str | None:
    """The token that is kept in the folder, None where there is none or it is another user's."""
    try:
        return (state_dir / TOKEN_FILE).read_text(encoding="ascii") or None
    except (OSError, ValueError):
        return None


def _said(state_dir: Path) -> RunningService | None:
    try:
        said = json.loads((state_dir / SERVICE_FILE).read_text())
        return RunningService(int(said["pid"]), float(said["started_at"]), said["url"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{state_dir / SERVICE_FILE} cannot be read ({error}); stop the service by its pid") from error
