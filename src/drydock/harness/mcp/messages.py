"""JSON-RPC messages, as lines and as what they are.

A server is a program of the task: what it writes may be anything. What is no message is left out, as clients do with
what a server prints by mistake.
"""

import json
from collections.abc import Sequence
from typing import Any

from drydock.chat.messages import clean_text
from drydock.harness.mcp.json_strings import with_strings

Message = dict[str, Any]

METHOD_NOT_FOUND = -32601

_SHOWN_METHOD_CHARS = 100


def request(number: int, method: str, params: dict[str, Any]) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def notification(method: str, params: dict[str, Any] | None = None) -> Message:
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


def line_of(message: Message) -> str:
    """A message in one line of ASCII, so that no sandbox can mistake its characters."""
    return json.dumps(message, separators=(",", ":"))


def messages_in(texts: Sequence[str]) -> list[Message]:
    """The messages among `texts`, each of which holds one, a batch of them, or none.

    All their strings can be encoded: JSON can spell half a surrogate pair, which nothing behind this takes.
    """
    found: list[Message] = []
    for text in texts:
        try:
            value = with_strings(json.loads(text), clean_text)
        except (ValueError, RecursionError):
            continue
        found += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
    return found


def answer_to(asked: Message) -> Message:
    """The answer to what a server asks the client: it is alive, it has no roots, and it can do nothing else."""
    head = {"jsonrpc": "2.0", "id": asked["id"]}
    match asked.get("method"):
        case "ping":
            return {**head, "result": {}}
        case "roots/list":
            return {**head, "result": {"roots": []}}
        case method:
            unknown = str(method)[:_SHOWN_METHOD_CHARS]
            return {**head, "error": {"code": METHOD_NOT_FOUND, "message": f"the client has no method {unknown!r}"}}
