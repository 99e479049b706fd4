#!/bin/bash
cat > /app/server.py << 'END'
"""The file is a log: a JSON line per change. A line without its end was cut off and is dropped."""

import base64
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

LIMIT = 2**20
values = {}
lock = threading.Lock()


def load(path):
    whole = 0
    with open(path, "ab+") as file:
        file.seek(0)
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            name, text = json.loads(line)
            if text is None:
                values.pop(name, None)
            else:
                values[name] = base64.b64decode(text)
        file.truncate(whole)
    return open(path, "ab")


def store(name, value):
    text = None if value is None else base64.b64encode(value).decode()
    log.write(json.dumps([name, text]).encode() + b"\n")
    log.flush()
    os.fsync(log.fileno())
    if value is None:
        del values[name]
    else:
        values[name] = value


class Handler(BaseHTTPRequestHandler):
    def handle_any(self):
        path, _, _ = self.path.partition("?")
        if path == "/keys":
            if self.command != "GET":
                return self.answer(405)
            with lock:
                names = sorted(values)
            return self.answer(200, json.dumps(names).encode(), "application/json")
        if not path.startswith("/keys/"):
            return self.answer(404)
        name = unquote(path[len("/keys/"):])
        if not name or len(name) > 200:
            return self.answer(400)
        if self.command == "GET":
            with lock:
                value = values.get(name)
            return self.answer(404) if value is None else self.answer(200, value)
        if self.command == "DELETE":
            with lock:
                if name not in values:
                    return self.answer(404)
                store(name, None)
            return self.answer(204)
        if self.command != "PUT":
            return self.answer(405)
        size = int(self.headers.get("Content-Length") or 0)
        if size > LIMIT:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(size)
        if len(body) < size:
            return None
        with lock:
            new = name not in values
            store(name, body)
        return self.answer(201 if new else 204)

    do_GET = do_PUT = do_DELETE = do_POST = do_PATCH = do_HEAD = do_OPTIONS = handle_any

    def answer(self, status, body=b"", kind="application/octet-stream"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


log = load(sys.argv[2])
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
END
