"""The service's own log as JSON lines, `state_dir`/service.jsonl: one object a line, rotated, without secrets.

Every line has `ts`, `level`, `logger`, `msg` and, where it was written on behalf of a call, the call's `request_id`.
A call's own line adds user, method, path, status and ms. A thread writes, so that the event loop never waits for it;
it lets lines gather for a moment, since to be woken for each one costs the loop as much as a small call does.
"""

import json
import logging
import queue
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path

from drydock.service.call_log import REQUEST_ID, calls
from drydock.service.timestamps import iso

LOG_FILE = "service.jsonl"
MAX_BYTES = 32 << 20
KEPT = 4
GATHER_S = 0.05


@contextmanager
def service_log(state_dir: Path) -> Iterator[None]:
    """Has everything that the package logs in the block written to the file, and leaves its loggers as they were."""
    file = RotatingFileHandler(state_dir / LOG_FILE, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8", delay=True)
    file.setFormatter(JsonLines())
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = _ToThread(lines)
    listener = _Gathering(lines, file)
    package = logging.getLogger("drydock")
    level, propagate = package.level, calls.propagate
    package.setLevel(logging.INFO)
    calls.propagate = False
    package.addHandler(handler)
    calls.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        package.removeHandler(handler)
        calls.removeHandler(handler)
        calls.propagate = propagate
        package.setLevel(level)
        listener.stop()
        file.close()


class JsonLines(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if request_id := getattr(record, "request_id", ""):
            line["request_id"] = request_id
        line |= getattr(record, "fields", {})
        return json.dumps(line, ensure_ascii=False)


class _Gathering(QueueListener):
    """Sleeps for `GATHER_S` after the line that woke it, then takes what has come meanwhile."""

    def __init__(self, lines: queue.SimpleQueue[logging.LogRecord], file: logging.Handler) -> None:
        super().__init__(lines, file)
        self._lines = lines

    def dequeue(self, block: bool) -> logging.LogRecord:
        try:
            return self._lines.get_nowait()
        except queue.Empty:
            record = self._lines.get(block)
            time.sleep(GATHER_S)
            return record


class _ToThread(QueueHandler):
    """Completes a record where it is logged (its call, its traceback) and hands it to the writing thread."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        record = super().prepare(record)
        record.request_id = REQUEST_ID.get()
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        print(f"drydock: a log line of {record.name} was lost: {sys.exception()!r}", file=sys.stderr)
