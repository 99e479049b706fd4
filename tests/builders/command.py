"""The `drydock` command as its users run it."""

import os
import pty
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from drydock.cli.main import main

_OURS = ("DRYDOCK_", "ARCTIC_CORTEX_")


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
    return {**kept, "COLUMNS": "200", **variables}


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def drydock(*words: str | Path, check: bool = True, **variables: str) -> Done:
    """Runs it without a terminal, inside this process and in a thread of its own, since it may run an event loop.

    Its environment is this process's without what names a service, and with `variables`.
    """
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(_run, list(map(str, words)), _environment(variables)).result(timeout=90)
    assert not check or done.returncode == 0, done.stderr
    return done


def _run(words: list[str], environment: dict[str, str]) -> Done:
    before, arguments = dict(os.environ), sys.argv
    code = 0
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = ["drydock", *words]
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv = arguments
            os.environ.clear()
            os.environ.update(before)
    return Done(code, out.getvalue(), err.getvalue())


def drydock_on_a_terminal(*words: str | Path, types: str, after: str, **variables: str) -> tuple[int, str]:
    """Runs it on a pseudo-terminal and types once `after` is shown; exit code and everything shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "drydock.cli.main", *map(str, words)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=_environment({**variables, "TERM": "xterm"}),
    )
    os.close(theirs)
    shown, typed, ends = "", False, time.monotonic() + 90
    try:
        while time.monotonic() < ends:
            ready, _, _ = select.select([ours], [], [], 1)
            if not ready:
                continue
            try:
                data = os.read(ours, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data.decode(errors="replace")
            if after in shown and not typed:
                os.write(ours, types.encode())
                typed = True
        return process.wait(10), shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
