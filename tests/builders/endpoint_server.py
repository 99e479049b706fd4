"""A scripted OpenAI-compatible endpoint behind a socket, for a driver that is a process of its own."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from builders.scripted_endpoint import Reply, ScriptedEndpoint


@dataclass
class EndpointServer:
    """Gives the reply at the place of the turn in its conversation. key: the bearer token that it wants.

    failures: (status, body) of the calls that come first, in place of replies. seen: bodies of the other calls.
    """

    replies: Sequence[Reply]
    key: str = ""
    models: Sequence[str] = ("m",)
    failures: list[tuple[int, str]] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)
    base_url: str = ""

    def chat(self, body: bytes) -> tuple[int, bytes]:
        if self.failures:
            status, said = self.failures.pop(0)
            return status, said.encode()
        request = json.loads(body)
        self.seen.append(request)
        scripted = ScriptedEndpoint(self.replies)
        scripted.bodies = [b""] * sum(message["role"] == "assistant" for message in request["messages"])
        return asyncio.run(scripted.answer(body))


@contextmanager
def endpoint_server(server: EndpointServer) -> Iterator[EndpointServer]:
    """Serve on a free port of loopback while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.give(200, json.dumps({"data": [{"id": name} for name in server.models]}).encode())

        def do_POST(self) -> None:
            self.give(*server.chat(self.rfile.read(int(self.headers["content-length"]))))

        def give(self, status: int, body: bytes) -> None:
            if server.key and self.headers.get("authorization") != f"Bearer {server.key}":
                said = self.headers.get("authorization")
                status, body = 401, json.dumps({"error": {"message": f"wrong key: {said}"}}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a caller that is gone by now
                self.end_headers()
                self.wfile.write(body)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    server.base_url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
