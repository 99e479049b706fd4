"""A small training service over real HTTP that answers in every way the API allows, as its test tells it to.

It stands for a server that is not ours: by default it ignores `Prefer` and `Idempotency-Key`, answers POSTs at once and
is polled. Results are scripted; requests, bodies and headers are kept for the test to read.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from uvicorn.server import ServerState

from drydock.client import RetryPolicy
from drydock.wire import (
    decode_frame,
    encode_frame,
    parse_chunk,
    reassemble,
    result_envelope,
    result_event,
    split_result,
)

FAST_RETRY = RetryPolicy(attempts=4, first_s=0.01, cap_s=0.02)
PREFIX = "/api/v2/databases/drydock/schemas/PUBLIC/cortex-training"
Answer = tuple[int, Any]


@dataclass
class Seen:
    """One HTTP request as it arrived; `path` is below the API's prefix."""

    method: str
    path: str
    headers: dict[str, str]
    query: dict[str, str]
    body: bytes
    peer: Any


@dataclass
class TrainingServer:
    """The service's script and memory.

    results: result of each kind of request; a text, or a pair of text and error type, for one that fails.
    heal_after: generate requests that fail before the others sample one token; None: all fail if told to.
    streams: of each generate-stream request its events, handed out once and two a poll, and last its final state.
    delivery: "plain", "envelope" or "events". held: answer POSTs and polls whole. polls: polls before the end.
    faults: answers to give before any real one, in order; None drops into the real answer, "hang" never answers.
    """

    results: dict[str, Any] = field(default_factory=dict)
    delivery: str = "plain"
    held: bool = False
    polls: int = 1
    faults: list[Answer | str | None] = field(default_factory=list)
    heal_after: int | None = None
    streams: list[list[dict[str, Any]]] = field(default_factory=list)
    jobs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    create_answer: Answer = (200, {"job_id": "made"})
    cancel_answer: Answer = (200, {})
    seen: list[Seen] = field(default_factory=list)
    executed: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""
    _requests: dict[str, tuple[str, int]] = field(default_factory=dict)
    _running_streams: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _chunks: dict[str, list[bytes]] = field(default_factory=dict)
    _state: ServerState = field(default_factory=ServerState)

    def reset(self) -> None:
        """Forget script and memory, once nothing of an earlier caller is on its way any more.

        Connections are accepted in order, so that after an answer on a new one all earlier ones are known.
        """
        httpx.get(self.url, headers={"Connection": "close"})
        wait_until(lambda: not self._state.connections)
        vars(self).update(vars(TrainingServer(url=self.url, _state=self._state)))

    def paths(self) -> list[str]:
        """What was asked for, in order: "POST /j/generate"."""
        return [f"{seen.method} {seen.path}" for seen in self.seen]

    async def answer(self, request: Request) -> Response:
        """The answer to any request, after the scripted faults."""
        path = request.url.path.removeprefix(PREFIX)
        headers, query = dict(request.headers), dict(request.query_params)
        seen = Seen(request.method, path, headers, query, await request.body(), request.client)
        self.seen.append(seen)
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hang":
            await asyncio.sleep(30)
        status, body = fault if isinstance(fault, tuple) else self._route(seen)
        content = body if isinstance(body, str) else json.dumps(body)
        return Response(content, status, {"retry-after": "0"} if status == 429 else None, "application/json")

    def _route(self, seen: Seen) -> Answer:
        parts = seen.path.strip("/").split("/")
        match seen.method, parts:
            case "GET", [""]:
                return 200, {"jobs": [states[0] for states in self.jobs.values()]}
            case "POST", [""]:
                return self.create_answer
            case "GET", ["capacity"]:
                return 200, {"has_reservation": True, "available_gpus": 3}
            case "POST", [name] if name.endswith(":cancel"):
                return self.cancel_answer
            case "GET", [job_id] if job_id in self.jobs:
                states = self.jobs[job_id]
                return 200, states.pop(0) if len(states) > 1 else states[0]
            case "GET", [job_id, "requests", request_id] if request_id in self._requests:
                return 200, self._page(job_id, request_id, seen.query.get("cursor"))
            case "POST", ["j", kind]:
                return self._start(kind, seen.body)
            case _:
                return 404, {"message": f"no such thing: {seen.path}", "code": "404"}

    def _start(self, kind: str, body: bytes) -> Answer:
        if kind == "forward-backward":
            chunk = parse_chunk(body)
            assert chunk.descriptor is not None
            if chunk.descriptor.chunk_idx == 0:
                self._chunks[str(chunk.descriptor.chunk_group_id)] = []
            group = self._chunks[str(chunk.descriptor.chunk_group_id)]
            if len(group) != chunk.descriptor.chunk_idx:
                return 409, {"detail": {"code": "chunk_group_missing_chunks"}}
            group.append(body)
            if len(group) < chunk.descriptor.total_chunks:
                return 200, {"chunk_cached": True}
            value: Any = decode_frame(reassemble(map(parse_chunk, group))).value
        else:
            value = json.loads(body) if body[:1] == b"{" else decode_frame(body).value
        if kind == "operation":
            kind = value["operation_type"]
        if kind == "generate-stream":
            self.executed.append((kind, value))
            request_id = f"r:{len(self._requests)}"
            self._requests[request_id] = (kind, 0)
            self._running_streams[request_id] = self.streams.pop(0)
            return 200, {"request_id": request_id, "job_id": "j", "count": len(value["prompts"])}
        self.executed.append((kind, value))
        if kind == "reset-prefix-cache":
            return 200, {"ok": True}
        request_id = f"r:{len(self._requests)}"
        self._requests[request_id] = (kind, 0 if self.held else self.polls)
        return 200, self._page("j", request_id, None) if self.held else {"request_id": request_id, "job_id": "j"}

    def _page(self, job_id: str, request_id: str, cursor: str | None) -> dict[str, Any]:
        kind, polls_left = self._requests[request_id]
        if kind == "generate-stream":
            return self._stream_page(request_id)
        page: dict[str, Any] = {"request_id": request_id, "job_id": job_id, "status": "running", "events": []}
        if polls_left > 0:
            self._requests[request_id] = (kind, polls_left - 1)
            return page
        result = self.results.get(kind, {})
        if kind == "generate" and self.heal_after is not None:
            self.heal_after -= 1
            if self.heal_after < 0:
                result = {"results": [{"text": "x", "token_ids": [1], "finish_reason": "stop"}]}
        if isinstance(result, str | tuple):
            error, error_type = result if isinstance(result, tuple) else (result, None)
            return page | {"status": "failed", "error": error, "error_type": error_type}
        if self.delivery == "plain":
            return page | {"status": "completed", "result": result}
        frame = encode_frame(result)
        if self.delivery == "envelope":
            return page | {"status": "REQUEST_STATE_SUCCEEDED", "result": result_envelope(frame)}
        events = [result_event(chunk) for chunk in reversed(split_result(frame, 2000))]
        index = int(cursor or 0)
        page["events"] = [{"type": "log"}, *events[index : index + 2]]
        if index + 2 < len(events):
            return page | {"next_cursor": str(index + 2)}
        return page | {"status": "completed"}

    def _stream_page(self, request_id: str) -> dict[str, Any]:
        script = self._running_streams[request_id]
        page = {"request_id": request_id, "job_id": "j", "status": "streaming", "events": script[:-1][:2]}
        del script[: len(page["events"])]
        if len(script) > 1:
            return page
        return page | script[-1]

    @contextlib.contextmanager
    def serving(self, port: int = 0) -> Iterator["TrainingServer"]:
        """Serve on a loopback port, by default a free one, until the block ends."""
        app = FastAPI(openapi_url=None)
        app.add_api_route("/{path:path}", self.answer, methods=["GET", "POST", "DELETE"])
        config = uvicorn.Config(app, port=port, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_until(lambda: server.started)
            self._state = server.server_state
            self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.should_exit = True
            thread.join()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait at most 10 s for the condition."""
    ends_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends_at, "gave up waiting"
        time.sleep(0.005)


@contextlib.asynccontextmanager
async def losing_answers(target_url: str, count: int) -> AsyncIterator[str]:
    """A relay before the server that lets the first `count` requests take effect and loses their answers."""
    host, port = target_url.removeprefix("http://").split(":")
    left = count

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, until: asyncio.Event | None) -> None:
        while data := await source.read(65536):
            if until is not None:
                until.set()
                return
            sink.write(data)
            await sink.drain()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        lost = asyncio.Event() if left > 0 else None
        left -= 1
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        asking = asyncio.create_task(pump(reader, upstream_writer, None))
        with contextlib.suppress(ConnectionError):
            await pump(upstream_reader, writer, lost)
        asking.cancel()
        upstream_writer.close()
        writer.close()

    relay_server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{relay_server.sockets[0].getsockname()[1]}"
    finally:
        relay_server.close()
