"""What a tool of an MCP server answered, as the text that the model reads."""

import json
from typing import Any


def rendered_result(result: dict[str, Any]) -> tuple[str, bool]:
    """The text of a result, and whether the server calls it an error. What a model cannot read is named instead."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    text = "\n".join(_of_block(block) for block in blocks)
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in blocks):
        text = "\n".join(part for part in (json.dumps(structured, ensure_ascii=False), text) if part)
    return text or "[no output]", result.get("isError") is True


def _of_block(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource {uri} of type {block['resource'].get('mimeType', 'unknown')} left out]"
        case {"type": "resource_link", "uri": uri}:
            return f"[link to the resource {uri}]"
        case {"type": kind}:
            return f"[{kind} of type {block.get('mimeType', 'unknown')} left out]"
        case _:
            return "[content of no known type left out]"
