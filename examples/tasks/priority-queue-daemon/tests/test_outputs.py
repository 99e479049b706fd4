import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(5)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r", encoding="utf-8", newline="\n")

    def send(self, line):
        self.socket.sendall(line.encode() + b"\n")

    def read(self):
        return self.lines.readline().rstrip("\n")

    def ask(self, line):
        self.send(line)
        return self.read()

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "queue.sock"
    path.write_text("left over")
    process = subprocess.Popen([sys.executable, "/app/queued.py", str(path)])
    for _ in range(100):
        assert process.poll() is None, "the daemon has ended"
        try:
            Client(path).close()
            break
        except OSError:
            time.sleep(0.05)
    yield path
    process.send_signal(signal.SIGTERM)
    assert process.wait(2) == 0
    assert not path.exists()


def stats(client, expected):
    for _ in range(50):
        if client.ask("STATS") == expected:
            return
        time.sleep(0.02)
    assert client.ask("STATS") == expected


def test_order(path):
    one = Client(path)
    assert [one.ask(f"PUT {p} job {p}") for p in (1, 5, -2, 5)] == ["OK 1", "OK 2", "OK 3", "OK 4"]
    assert [one.ask("TAKE 0") for _ in range(5)] == ["JOB 2 job 5", "JOB 4 job 5", "JOB 1 job 1", "JOB 3 job -2", "NONE"]
    assert one.ask("DONE 2") == "OK"
    assert one.ask("DONE 2") == "ERROR not leased"
    stats(one, "READY 0 LEASED 3 WAITING 0")


def test_text_is_kept(path):
    one = Client(path)
    assert one.ask("PUT 1   two  blanks ü ") == "OK 1"
    assert one.ask("TAKE 0") == "JOB 1   two  blanks ü "


def test_waiting_clients_in_order(path):
    first, second, giver = Client(path), Client(path), Client(path)
    first.send("TAKE 4")
    stats(giver, "READY 0 LEASED 0 WAITING 1")
    second.send("TAKE 4")
    stats(giver, "READY 0 LEASED 0 WAITING 2")
    giver.send("PUT 1 a\nPUT 9 b")
    assert [giver.read(), giver.read()] == ["OK 1", "OK 2"]
    assert first.read() == "JOB 1 a"
    assert second.read() == "JOB 2 b"


def test_waiting_ends(path):
    one = Client(path)
    started = time.monotonic()
    assert one.ask("TAKE 0.3") == "NONE"
    assert 0.25 < time.monotonic() - started < 2


def test_leases_come_back(path):
    lost, other = Client(path), Client(path)
    other.ask("PUT 3 x")
    other.ask("PUT 3 y")
    assert lost.ask("TAKE 0") == "JOB 1 x"
    assert other.ask("DONE 1") == "ERROR not leased"
    lost.close()
    stats(other, "READY 2 LEASED 0 WAITING 0")
    assert other.ask("TAKE 0") == "JOB 1 x"


def test_a_waiter_that_leaves_gets_nothing(path):
    gone, other = Client(path), Client(path)
    gone.send("TAKE 5")
    stats(other, "READY 0 LEASED 0 WAITING 1")
    gone.close()
    stats(other, "READY 0 LEASED 0 WAITING 0")
    other.ask("PUT 1 a")
    assert other.ask("TAKE 0") == "JOB 1 a"


def test_returned_lease_goes_to_a_waiter(path):
    holder, waiter, other = Client(path), Client(path), Client(path)
    other.ask("PUT 1 a")
    holder.ask("TAKE 0")
    waiter.send("TAKE 4")
    stats(other, "READY 0 LEASED 1 WAITING 1")
    holder.close()
    assert waiter.read() == "JOB 1 a"


@pytest.mark.parametrize("line", ["", "NOPE", "PUT", "PUT x y", "TAKE", "TAKE soon", "DONE", "DONE x", "put 1 a"])
def test_errors(path, line):
    one = Client(path)
    assert one.ask(line).startswith("ERROR ")
    assert one.ask("STATS") == "READY 0 LEASED 0 WAITING 0"
