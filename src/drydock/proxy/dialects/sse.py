"""Server-sent events (the `text/event-stream` of the HTML standard) as bytes."""

import json
from typing import Any

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which every client skips."""
DONE = b"data: [DONE]\n\n"


def event(data: dict[str, Any], name: str = "") -> bytes:
    """One event; JSON has no line breaks of its own, so it is one data line."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
