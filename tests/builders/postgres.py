"""A throw-away PostgreSQL server from the programs that the machine has installed.

It listens on loopback with a random password, keeps nothing safe on disk (no fsync), refuses to run as root as the
real one does (a root test run starts it as the `postgres` user) and ends with the test process.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

START_S = 30.0
USER = "drydock"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server; every test takes a database of its own from it."""

    port: int
    password: str

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`, newest version first; None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server for as long as the block runs."""
    bin_dir = programs()
    assert bin_dir is not None, "no PostgreSQL programs on this machine"
    folder = Path(tempfile.mkdtemp(prefix="drydock-postgres-"))
    prefix = ["setpriv", "--pdeathsig", "QUIT"]
    try:
        password = secrets.token_hex(16)
        (folder / "password").write_text(password)
        if os.geteuid() == 0:
            prefix += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
            for path in (folder, folder / "password"):
                shutil.chown(path, "postgres", "postgres")
        made = subprocess.run(
            [
                *(*prefix, bin_dir / "initdb", "--pgdata", folder / "data", "--username", USER, "--no-sync"),
                *("--auth", "scram-sha-256", "--pwfile", folder / "password", "--encoding", "UTF8", "--locale", "C"),
            ],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=START_S,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = folder / "server.log"
        options = ["fsync=off", "full_page_writes=off", f"unix_socket_directories={folder}", "max_connections=40"]
        with log.open("wb") as output:
            server = subprocess.Popen(
                [
                    *(*prefix, bin_dir / "postgres", "-D", folder / "data", "-h", "127.0.0.1", "-p", str(port)),
                    *(part for option in options for part in ("-c", option)),
                ],
                stdout=output,
                stderr=output,
                cwd="/",
            )
        try:
            running = Postgres(port, password)
            _wait_until_it_answers(running, server, log)
            yield running
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(server: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(server.url("postgres"), connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.05)
