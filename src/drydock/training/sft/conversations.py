"""Conversations from files: JSON Lines (one object a line) or Parquet (one row each).

`messages` is a list as OpenAI's clients write it: roles, content as a text or as text parts, tool calls; `tools` is a
list of function schemas, or the same as a JSON text. Tool calls may leave out their ids, which then are made up, and
may hold their arguments as an object. An assistant's thinking is its `reasoning_content`, for templates that write it.
Other columns are ignored; a key of a message that would be lost (a picture, say) is refused, because the model would be
taught another conversation than was given.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.chat.messages import Message, parse_message
from drydock.chat.refusal import RequestRefused
from drydock.errors import ConfigError

KEYS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")


@dataclass(frozen=True, slots=True)
class Conversation:
    """tools: function schemas, None where none are given. origin: `file:line` (Parquet: `file:row`), for messages."""

    messages: tuple[Message, ...]
    tools: list[dict[str, Any]] | None
    origin: str


def read_conversations(file: Path, setting: str) -> list[Conversation]:
    """The conversations of a file. Raises ConfigError naming file and line of what is wrong, or `setting`."""
    rows = _parquet_rows(file, setting) if file.suffix == ".parquet" else _json_lines(file, setting)
    conversations = [_conversation(row, origin) for origin, row in rows]
    if not conversations:
        raise ConfigError(f"{setting}: {file} holds no conversation")
    return conversations


def _json_lines(file: Path, setting: str) -> Iterator[tuple[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting}: cannot read {file}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield f"{file}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{file}:{number}: not JSON: {error}") from None


def _parquet_rows(file: Path, setting: str) -> Iterator[tuple[str, Any]]:
    """Rows with nulls left out: where structs of a column differ, Parquet fills their missing keys with them."""
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            f"{setting}: {file} is a Parquet file, which the package pyarrow reads: install it "
            "(pip install 'drydock-rl[parquet]'), or give JSON Lines"
        ) from None
    try:
        table = parquet.ParquetFile(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{setting}: cannot read {file}: {error}") from None
    wanted = [name for name in ("messages", "tools") if name in table.schema_arrow.names]
    number = 0
    for batch in table.iter_batches(columns=wanted):
        for row in batch.to_pylist():
            yield f"{file}:{number}", {key: _decoded(_without_nulls(value)) for key, value in row.items()}
            number += 1


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _decoded(value: Any) -> Any:
    """A column that holds JSON texts; what is none is left as it is, for the checks to name."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _conversation(row: Any, origin: str) -> Conversation:
    raw = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(raw, list):
        raise ConfigError(f'{origin}: expected {{"messages": […]}}')
    tools = _decoded(row.get("tools")) or None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise ConfigError(f"{origin}: tools must be a list of function schemas")
    try:
        messages = tuple(parse_message(message, place) for place, message in enumerate(_completed(raw)))
    except RequestRefused as error:
        raise ConfigError(f"{origin}: {error}") from None
    roles = [message.role for message in messages]
    if not roles or roles[roles[0] == "system" :][:1] != ["user"] or "assistant" not in roles:
        raise ConfigError(
            f"{origin}: a conversation starts with a user message, after a system message if there is one, and holds "
            "an assistant's"
        )
    for place in range(1, len(roles)):
        if roles[place - 1] == roles[place] == "assistant":
            raise ConfigError(
                f"{origin}: messages[{place}] is an assistant's after an assistant's; join them into one turn"
            )
    return Conversation(messages, tools, origin)


def _completed(raw: list[Any]) -> Iterator[Any]:
    """The messages with ids of tool calls and results filled in, in their order, and arguments as JSON texts."""
    unanswered: list[str] = []
    for place, message in enumerate(raw):
        if not isinstance(message, dict):
            yield message
            continue
        given = {key: value for key, value in message.items() if value is not None}
        if unknown := sorted(given.keys() - set(KEYS)):
            raise RequestRefused(
                f"messages[{place}].{unknown[0]} is not known and would not be trained; write what the model is to say "
                "into content, as its template does, or leave the key out",
                param="messages",
            )
        if isinstance(calls := given.get("tool_calls"), list):
            given["tool_calls"] = [_completed_call(call, f"call_{place}_{n}") for n, call in enumerate(calls)]
            unanswered = [call["id"] for call in given["tool_calls"] if isinstance(call, dict) and "id" in call]
        elif given.get("role") == "tool" and unanswered:
            given.setdefault("tool_call_id", unanswered[0])
            unanswered = [one for one in unanswered if one != given["tool_call_id"]]
        yield given


def _completed_call(call: Any, identity: str) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    if isinstance(arguments := function.get("arguments"), dict):
        function = {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {**call, "id": call.get("id") or identity, "function": function}
