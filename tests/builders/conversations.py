"""Chat conversations as the replies of a policy."""

from collections.abc import Sequence
from typing import Any


def replies_of(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What a policy samples, turn by turn, to say what the assistant of `messages` says: Hermes calls after content."""
    replies = []
    for message in messages:
        if message["role"] != "assistant":
            continue
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        written = [f'{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}' for call in calls]
        tags = "".join(f"<tool_call>\n{one}\n</tool_call>" for one in written)
        replies.append((message.get("content") or "") + tags)
    return replies
