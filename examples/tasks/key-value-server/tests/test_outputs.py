import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from contextlib import contextmanager

import pytest


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def server(file):
    port = free_port()
    process = subprocess.Popen([sys.executable, "/app/server.py", str(port), str(file)])
    try:
        for _ in range(200):
            assert process.poll() is None, "the server has ended"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def call(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def key(name):
    return "/keys/" + urllib.parse.quote(name, safe="")


def test_store_and_forget(tmp_path):
    with server(tmp_path / "data") as port:
        assert call(port, "GET", key("a"))[0] == 404
        assert call(port, "PUT", key("a"), b"one")[0] == 201
        assert call(port, "PUT", key("a"), bytes(range(256)))[0] == 204
        assert call(port, "GET", key("a")) == (200, bytes(range(256)))
        assert call(port, "PUT", key("a/b ü"), b"")[0] == 201
        assert call(port, "GET", key("a/b ü")) == (200, b"")
        status, body = call(port, "GET", "/keys")
        assert (status, json.loads(body)) == (200, ["a", "a/b ü"])
        assert call(port, "DELETE", key("a"))[0] == 204
        assert call(port, "DELETE", key("a"))[0] == 404


def test_refusals(tmp_path):
    with server(tmp_path / "data") as port:
        call(port, "PUT", key("a"), b"old")
        assert call(port, "PUT", "/keys/", b"x")[0] == 400
        assert call(port, "PUT", key("k" * 201), b"x")[0] == 400
        assert call(port, "PUT", key("ü" * 200), b"x")[0] == 201
        try:
            assert call(port, "PUT", key("a"), b"x" * (2**20 + 1))[0] == 413
        except ConnectionError:
            pass
        assert call(port, "GET", key("a")) == (200, b"old")
        assert call(port, "PUT", key("a"), b"x" * 2**20)[0] == 204
        assert call(port, "GET", "/other")[0] == 404
        assert call(port, "POST", key("a"), b"x")[0] == 405
        assert call(port, "DELETE", "/keys")[0] == 405


def test_survives_kill(tmp_path):
    for round_ in range(3):
        with server(tmp_path / "data") as port:
            for earlier in range(round_):
                assert call(port, "GET", key(f"k{earlier}")) == (200, b"v%d" % earlier)
            call(port, "PUT", key("gone"), b"x")
            call(port, "DELETE", key("gone"))
            assert call(port, "PUT", key(f"k{round_}"), b"v%d" % round_)[0] == 201
    with server(tmp_path / "data") as port:
        assert json.loads(call(port, "GET", "/keys")[1]) == ["k0", "k1", "k2"]


def test_cut_off_file(tmp_path):
    file = tmp_path / "data"
    with server(file) as port:
        call(port, "PUT", key("first"), b"1")
        call(port, "PUT", key("last"), b"2" * 1000)
    size = file.stat().st_size
    os.truncate(file, size - 1)
    with server(file) as port:
        assert call(port, "GET", key("first")) == (200, b"1")
        assert call(port, "PUT", key("next"), b"3")[0] == 201
    with server(file) as port:
        assert call(port, "GET", key("next")) == (200, b"3")


def test_slow_client_holds_up_nobody(tmp_path):
    with server(tmp_path / "data") as port:
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"PUT /keys/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        statuses = []
        threads = [
            threading.Thread(target=lambda n=n: statuses.append(call(port, "PUT", key(f"n{n}"), b"x")[0])) for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(15)
        slow.close()
        assert statuses == [201] * 20
