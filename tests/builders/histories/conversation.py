"""What a harness holds: messages of its own, and the policy's turns as its SDK writes them back."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

type Wire = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One message.

    turn: the recorded turn that it is (a part of), None for the harness's own. same: whether it still says what was
    sampled. part: a later part of a turn that was split.
    """

    message: Wire
    turn: int | None = None
    same: bool = True
    part: bool = False

    @property
    def calls(self) -> list[Wire]:
        """Tool calls in it."""
        return self.message.get("tool_calls") or []


@dataclass(frozen=True)
class Conversation:
    """One history of a rollout, and whether its agent has tools (`tools` counts the sets)."""

    entries: tuple[Entry, ...]
    tools: int

    @property
    def messages(self) -> list[Wire]:
        """What the request says."""
        return [entry.message for entry in self.entries]

    @property
    def turn_places(self) -> list[int]:
        """Places of the policy's turns."""
        return [place for place, entry in enumerate(self.entries) if entry.turn is not None and not entry.part]

    def own(self, *messages: Wire) -> "Conversation":
        """With messages of the harness at its end."""
        return replace(self, entries=(*self.entries, *map(Entry, messages)))

    def cut(self, length: int) -> "Conversation":
        """The first entries, so that it ends in a message that a turn may follow."""
        entries = self.entries[:length]
        while len(entries) > 1 and entries[-1].message["role"] == "assistant":
            entries = entries[:-1]
        return replace(self, entries=entries)

    def without(self, place: int) -> "Conversation":
        """Without the turn at `place` and the results of its calls."""
        ids = {call["id"] for call in self.entries[place].calls}
        turn = self.entries[place].turn
        kept = [
            entry
            for number, entry in enumerate(self.entries)
            if number != place
            and entry.message.get("tool_call_id") not in ids
            and not (entry.part and entry.turn == turn)
        ]
        return replace(self, entries=tuple(kept))

    def put(self, place: int, *entries: Entry) -> "Conversation":
        """With other entries in place of one."""
        return replace(self, entries=(*self.entries[:place], *entries, *self.entries[place + 1 :]))


def results(entry: Entry, texts: list[str]) -> list[Wire]:
    """Tool messages for the calls of a turn; the last text answers all that are left."""
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": texts[min(number, len(texts) - 1)]}
        for number, call in enumerate(entry.calls)
    ]


type Rewrite = Callable[[Wire], Wire | None]
"""The message as an SDK writes it back; None where it does not apply."""


def _arguments(change: Callable[[Wire], Wire], **how: Any) -> Rewrite:
    def rewrite(message: Wire) -> Wire | None:
        calls = message.get("tool_calls")
        if not calls:
            return None
        changed = [
            {**call, "function": {**call["function"], "arguments": json.dumps(change(_loaded(call)), **how)}}
            for call in calls
        ]
        return {**message, "tool_calls": changed}

    return rewrite


def _loaded(call: Wire) -> Wire:
    return json.loads(call["function"]["arguments"])


def _decoded(arguments: Wire) -> Wire:
    return {
        key: json.loads(value) if isinstance(value, str) and value.startswith("[") else value
        for key, value in arguments.items()
    }


def _renamed(message: Wire) -> Wire | None:
    if not message.get("tool_calls"):
        return None
    calls = [{**call, "function": {**call["function"], "name": "bash"}} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _without_content(message: Wire) -> Wire | None:
    return {**message, "content": None} if message.get("tool_calls") and message.get("content") else None


def _without_reasoning(message: Wire) -> Wire | None:
    if not message.get("reasoning_content"):
        return None
    return {key: value for key, value in message.items() if key != "reasoning_content"}


def _trimmed(message: Wire) -> Wire | None:
    return {**message, "content": f" {_text(message).strip()}\n"}


def _in_parts(message: Wire) -> Wire | None:
    return {**message, "content": [{"type": "text", "text": _text(message)}]} if message.get("content") else None


SAME: dict[str, Rewrite] = {
    "arguments indented": _arguments(lambda arguments: arguments, indent=2),
    "arguments in another order": _arguments(lambda arguments: dict(reversed(arguments.items())), ensure_ascii=False),
    "nulls dropped": _arguments(lambda arguments: {key: one for key, one in arguments.items() if one is not None}),
    "texts decoded": _arguments(_decoded, separators=(",", ":")),
    "tool renamed": _renamed,
    "content beside calls dropped": _without_content,
    "reasoning dropped": _without_reasoning,
    "white space around": _trimmed,
    "content as parts": _in_parts,
}
"""What an SDK does to a turn that still says the same."""


def _text_changed(message: Wire) -> Wire | None:
    return {**message, "content": f"{_text(message)} (edited)"}


def _text(message: Wire) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else content[0]["text"]


def _reasoning_changed(message: Wire) -> Wire | None:
    reasoning = message.get("reasoning_content")
    return {**message, "reasoning_content": f"{reasoning} (edited)"} if reasoning else None


def _one_call_less(message: Wire) -> Wire | None:
    calls = message.get("tool_calls") or []
    return {**message, "tool_calls": calls[1:]} if len(calls) > 1 else None


CHANGED: dict[str, Rewrite] = {
    "text": _text_changed,
    "reasoning": _reasoning_changed,
    "arguments": _arguments(lambda arguments: {**arguments, "command": "repaired"}),
    "arguments and name": lambda message: _arguments(lambda _: {"line": 1})(_renamed(message) or message),
    "a call left out": _one_call_less,
}
"""What a harness does to a turn that the policy has to see."""


def split(entry: Entry, answers: list[Wire]) -> list[Entry] | None:
    """A turn with several calls as one message for each call, the results between them."""
    if len(entry.calls) < 2:
        return None
    entries: list[Entry] = []
    for number, call in enumerate(entry.calls):
        content = entry.message.get("content") if number == 0 else None
        message = {**entry.message, "content": content, "tool_calls": [call]}
        entries += [replace(entry, message=message, part=number > 0), Entry(answers[number])]
    return entries
