"""A server made with the MCP project's own Python SDK: `python mcp_sdk_server.py TRANSPORT PORT [json] [SECRET]`.

With a SECRET every HTTP request has to carry it as a bearer token, and the tool `whoami` tells it.
"""

import sys
import time

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.message import ServerMessageMetadata
from mcp_types import EmptyResult, PingRequest

transport, port = sys.argv[1], int(sys.argv[2])
as_json = "json" in sys.argv[3:]
secret = next((word for word in sys.argv[3:] if word != "json"), "")
server = MCPServer("weather", log_level="ERROR")


@server.tool()
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


@server.tool()
async def alive(context: Context) -> str:
    """Ask the client whether it is alive, in the middle of the call."""
    await context.report_progress(1, 2)
    related = ServerMessageMetadata(related_request_id=context.request_id)
    await context.session.send_request(PingRequest(), EmptyResult, metadata=related)
    return "the client is alive"


@server.tool()
def letters(count: int) -> str:
    """As many letters as are asked for."""
    return "é" * count


@server.tool()
def sleep(seconds: float) -> str:
    """Answer late."""
    time.sleep(seconds)
    return "awake"


@server.tool()
def whoami() -> str:
    """Tell the token."""
    return f"your token is {secret}"


class Guarded:
    """Refuses requests without the token, and says which it got."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        given = dict(scope.get("headers", [])).get(b"authorization", b"").decode()
        if scope["type"] != "http" or given == f"Bearer {secret}":
            await self.app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": f"not {given!r}".encode()})


if transport == "stdio":
    server.run("stdio")
else:
    app = server.sse_app() if transport == "sse" else server.streamable_http_app(json_response=as_json)
    guarded = Guarded(app) if secret else app
    config = uvicorn.Config(guarded, host="127.0.0.1", port=port, log_level="error")
    anyio.run(uvicorn.Server(config).serve)
