"""A worker's link to the API process: it outlives that process, and no operation is lost or run twice over it.

The worker listens on a Unix socket of its own (mode 0600, in a folder of mode 0700; only a process of the same user
is heard). The API process connects and says `attach` with the worker's nonce; the answer, `hello`, says which
operations the worker knows. From then on every message with an `id` is an operation. An id is remembered: one that
comes again is not run again. A reply is kept until the API process says `ack`, which it does once the result is in its
store, and is sent again over a new connection until then. When the API process dies the worker goes on with what it
has and waits `outlive_s` for the next one; then it ends itself. With `outlive_s` 0 it ends at once.

Threads: one accepts and reads, one a connection writes and sends a heartbeat each second; the engine has the main
thread to itself, which takes operations with `receive` and answers with `send`. A heartbeat therefore needs the GIL
only: it goes out during any operation that releases it now and then.
"""

import contextlib
import logging
import os
import queue
import socket
import struct
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from drydock.service.channel import ChannelClosed, Message, WorkerChannel
from drydock.service.process_memory import resident_bytes

HEARTBEAT_S = 1.0
FIRST_ATTACH_S = 30.0
ATTACH_S = 10.0
IDS_REMEMBERED = 100_000

logger = logging.getLogger("drydock.worker.link")


@dataclass(slots=True)
class _Operation:
    """An operation that the API process has not acknowledged. `request`: what it needs to know it again by."""

    name: str
    request: dict[str, Any] | None
    state: Literal["queued", "running", "finished"] = "queued"
    reply: Message | None = None


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection to an API process and what waits to be written to it."""

    channel: WorkerChannel
    outbox: queue.SimpleQueue[Message | None] = field(default_factory=queue.SimpleQueue)


class WorkerLink:
    """The worker's only contact with the world; made and used by the main thread."""

    def __init__(self, path: Path, nonce: str, outlive_s: float) -> None:
        self.note: dict[str, Any] = {}  # what `hello` tells beside the operations
        self._nonce = nonce
        self._outlive_s = outlive_s
        self._operations: dict[str, _Operation] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._acknowledged = threading.Condition(self._lock)
        self._connection: _Connection | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = path
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(4)
        threading.Thread(target=self._serve, name="link", daemon=True).start()

    def receive(self, timeout_s: float | None) -> Message | None:
        """The next operation, or None when none came within `timeout_s` (0: look only; None: wait for ever)."""
        try:
            message = self._inbox.get(timeout_s != 0, timeout_s or None)
        except queue.Empty:
            return None
        with self._lock:
            operation = self._operations.get(message.header.get("id") or "")
            if operation is not None:
                operation.state = "running"
        return message

    def send(self, reply: Message) -> None:
        """Gives the reply to the operation whose id it has; it is kept until it is acknowledged."""
        with self._lock:
            operation = self._operations.get(reply.header["id"])
            if operation is None:
                return
            operation.state, operation.reply = "finished", reply
            if self._connection is not None:
                self._connection.outbox.put(reply)

    def tell(self, message: Message) -> None:
        """Sends what is worth hearing only while it is new: it is not kept for an API process that comes later."""
        with self._lock:
            if self._connection is not None:
                self._connection.outbox.put(message)

    def flush(self, timeout_s: float) -> None:
        """Waits until every reply is acknowledged or the time is up; for a worker that is about to end."""
        with self._acknowledged:
            self._acknowledged.wait_for(lambda: not self._operations, timeout_s)

    def close(self) -> None:
        """Takes the socket's name away."""
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        patience_s = max(FIRST_ATTACH_S, self._outlive_s)
        try:
            while True:
                self._listener.settimeout(patience_s)
                try:
                    sock, _ = self._listener.accept()
                except TimeoutError:
                    self._end(f"no service came back within {patience_s:g} s")
                if _peer_uid(sock) != os.getuid():
                    logger.warning("a process of another user tried to connect and was turned away")
                    sock.close()
                    continue
                if self._talk(WorkerChannel(sock)):
                    patience_s = self._outlive_s
                    if patience_s <= 0:
                        self._end("the service closed the connection")
                    logger.warning("the service is gone; waiting %g s for it to come back", patience_s)
        except BaseException:
            logger.exception("the link failed; this worker ends")
            self._end("the link failed")

    def _end(self, reason: str) -> NoReturn:
        logger.warning("%s; this worker ends", reason)
        with contextlib.suppress(OSError):
            self.close()
        os._exit(0)

    def _talk(self, channel: WorkerChannel) -> bool:
        """Serves one connection to its end; False when the other side was no service of ours."""
        connection = _Connection(channel)
        writer = threading.Thread(target=self._write, args=(connection,), name="link writer", daemon=True)
        try:
            first = channel.receive(ATTACH_S)
            if first is None or first.header.get("op") != "attach" or first.header.get("nonce") != self._nonce:
                logger.warning("a connection that does not know this worker was turned away")
                return False
            with self._lock:
                connection.outbox.put(self._hello())
                for operation in self._operations.values():
                    if operation.reply is not None:
                        connection.outbox.put(operation.reply)
                self._connection = connection
            writer.start()
            while True:
                message = channel.receive(None)
                assert message is not None
                self._take(message)
        except ChannelClosed:
            pass
        finally:
            with self._lock:
                self._connection = None
            connection.outbox.put(None)
            if writer.ident is not None:
                channel.close()
                writer.join()
            else:
                channel.close()
        return True

    def _hello(self) -> Message:
        known = {
            name: {"op": operation.name, "state": operation.state, "request": operation.request}
            for name, operation in self._operations.items()
        }
        return Message({"hello": {"nonce": self._nonce, "pid": os.getpid(), "operations": known, "note": self.note}})

    def _take(self, message: Message) -> None:
        header = message.header
        if header["op"] == "ack":
            with self._lock:
                for name in header["ids"]:
                    if self._operations.pop(name, None) is not None:
                        self._remember(name)
                self._acknowledged.notify_all()
            return
        name = header.get("id")
        if name is not None:
            with self._lock:
                if name in self._operations or name in self._done:
                    logger.warning("operation %s (%s) came a second time and is not run again", name, header["op"])
                    return
                self._operations[name] = _Operation(header["op"], header.pop("request", None))
        self._inbox.put(message)

    def _remember(self, name: str) -> None:
        self._done[name] = None
        if len(self._done) > IDS_REMEMBERED:
            self._done.popitem(last=False)

    def _write(self, connection: _Connection) -> None:
        """Writes what is in the outbox, and a heartbeat at least each second."""
        next_beat = time.monotonic() + HEARTBEAT_S
        try:
            while True:
                if time.monotonic() >= next_beat:
                    connection.channel.send(self._heartbeat())
                    next_beat = time.monotonic() + HEARTBEAT_S
                try:
                    message = connection.outbox.get(timeout=max(0.01, next_beat - time.monotonic()))
                except queue.Empty:
                    continue
                if message is None:
                    return
                connection.channel.send(message)
        except ChannelClosed:
            return

    def _heartbeat(self) -> Message:
        with self._lock:
            running = [operation.name for operation in self._operations.values() if operation.state == "running"]
        return Message({"heartbeat": {"resident_bytes": resident_bytes(), "running": running[:1]}})


def _peer_uid(sock: socket.socket) -> int:
    """User of the process at the other end."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return uid
    return os.getuid()  # elsewhere the folder's mode alone keeps others out
