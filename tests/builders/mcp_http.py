"""An HTTP server whose every byte a test decides, for replies that no library writes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from harbor.models.task.config import MCPServerConfig

Reply = Callable[[dict[str, Any]], str]


@asynccontextmanager
async def replying(reply: Reply, *, transport: str = "streamable-http", stays_s: float = 0.2) -> AsyncIterator[Any]:
    """A server as a task lists it. reply: the whole reply (head and body) to the message that a request carries ({}
    for none). The connection stays open for `stays_s` after it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length:")[2].partition("\r")[0] or 0)
            message = json.loads(await reader.readexactly(size)) if size else {}
            writer.write(reply(message).encode())
            await writer.drain()
            if "id" in message or not size:
                await asyncio.sleep(stays_s)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        yield MCPServerConfig.model_validate({"name": "odd", "transport": transport, "url": url})
    finally:
        server.close()


def http(body: str, kind: str = "application/json", status: str = "200 OK") -> str:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}"


def answer(message: dict[str, Any]) -> str:
    """The JSON of the answer to a message by a server with one tool, `greet`; `{}` to a notification."""
    results = {
        "initialize": {"protocolVersion": "2025-06-18"},
        "tools/list": {"tools": [{"name": "greet"}]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }
    if "id" not in message:
        return "{}"
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})
