"""What the proxy has to ask the policy under, told from the conversations alone.

The tree of turns as docs/branches.md describes it, with each prompt taken from one rendering of the whole conversation:
a stand-in takes the place of the turn that the request goes on from; what follows its end there follows the sampled
tokens. No code of the ledger, of matching or of continuations is used. Turns with calls are told apart by who made
them, which the test knows, not by reading arguments.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from builders.chat_families import Family
from builders.histories.conversation import Conversation, Entry
from builders.histories.full_rendering import FullRendering

from drydock.chat.template import ChatTemplate
from drydock.errors import TemplateError

type Wire = dict[str, Any]
type Canon = tuple[Any, ...]

_MARK = "Zw3standsin3wZ"
_HISTORY_ENDS = {"gpt-oss": ("<|end|>",), "glm4.6": ("<|system|>", "<|assistant|>")}
"""Tokens at which the text of a turn ends in the history, besides those that the model samples."""
_NO_OWN_END = ("glm4.6",)
_HIDDEN = re.compile(r"<think>\s*</think>\s*|<\|start\|>assistant<\|channel\|>analysis<\|message\|>.*?<\|end\|>", re.S)


@dataclass(eq=False)
class Node:
    """A turn, asked for and perhaps recorded. given: messages of the harness after the parent's turn, as rendered.

    branches: whether it had siblings when it was asked for. why: the reason where it can be only one.
    """

    parent: "Node | None"
    tools: int
    canon: tuple[Canon, ...]
    given: list[Wire]
    prompt: list[int]
    branches: bool
    why: str | None = None
    children: "list[Node]" = field(default_factory=list)
    index: int = -1
    reply: Wire = field(default_factory=dict)
    sampled: list[int] = field(default_factory=list)
    body: bytes = b""

    @property
    def path(self) -> "list[Node]":
        """From the first to this one."""
        return [*(self.parent.path if self.parent else []), self]


@dataclass(frozen=True)
class Expected:
    """node: where the request belongs. repeat: that was there already. Without a node the template refuses."""

    node: Node | None
    repeat: bool = False


class HistoryModel:
    """One rollout. tool_sets: what the numbers of a conversation's tools stand for."""

    def __init__(
        self, family: Family, template: ChatTemplate, tool_sets: Sequence[list[Wire] | None], *, strips: bool
    ) -> None:
        """strips: the run shows history as a template does that hides thinking before the last user message."""
        self._family = family
        self._rendering = FullRendering(family, template)
        self._generation_prompt = template.generation_prompt
        self._tools = tool_sets
        self._strips = strips
        self._roots: list[Node] = []
        self.turns: list[Node] = []

    def place(self, conversation: Conversation) -> Expected:
        """Where a request belongs; the node is there from now on, for `record`."""
        parent, start = self._longest(conversation)
        own = parent.index if parent else None
        given = [entry for entry in conversation.entries[start:] if own is None or entry.turn != own]
        if parent is None:
            return self._at_root(conversation, None)
        thought = self._strips and any(node.reply.get("reasoning_content") for node in parent.path)
        if thought and any(entry.message["role"] == "user" for entry in given):
            return self._at_root(conversation, "thinking_stripped")
        if (known := _same(parent.children, conversation.tools, given)) is not None:
            return Expected(known, repeat=True)
        shown = self._shown(given)
        try:
            prompt = self._continued(parent, shown, self._tools[conversation.tools])
        except TemplateError:
            return Expected(None)
        if prompt is None:
            return self._at_root(conversation, "template_rewrites")
        return self._add(parent, parent.children, conversation.tools, given, shown, prompt, None)

    def record(self, node: Node, reply: Wire, sampled: list[int], body: bytes) -> None:
        """The turn was sampled, and answered with `body`."""
        node.index, node.reply, node.sampled, node.body = len(self.turns), reply, sampled, body
        self.turns.append(node)

    def _at_root(self, conversation: Conversation, why: str | None) -> Expected:
        if (known := _same(self._roots, conversation.tools, conversation.entries)) is not None:
            return Expected(known, repeat=True)
        shown = self._shown(conversation.entries)
        try:
            text = self._rendering.text(shown, self._tools[conversation.tools])
        except TemplateError:
            return Expected(None)
        prompt = self._rendering.encode(text)
        return self._add(None, self._roots, conversation.tools, conversation.entries, shown, prompt, why)

    def _add(
        self,
        parent: Node | None,
        siblings: list[Node],
        tools: int,
        given: Sequence[Entry],
        shown: list[Wire],
        prompt: list[int],
        why: str | None,
    ) -> Expected:
        node = Node(parent, tools, _canons(given), shown, prompt, bool(siblings) or why is not None, why)
        siblings.append(node)
        return Expected(node)

    def _longest(self, conversation: Conversation) -> tuple[Node | None, int]:
        """The turn up to which most of the conversation is recorded, and the place after it."""
        ends = list(self._ends(conversation, None, self._roots, 0))
        most = max((place for _, place in ends), default=0)
        found = [(node, place) for node, place in ends if place == most]
        assert len(found) < 2, "two recorded histories of one length; the model cannot choose"
        return found[0] if found else (None, 0)

    def _ends(
        self, conversation: Conversation, parent: Node | None, children: list[Node], start: int
    ) -> Iterator[tuple[Node, int]]:
        entries = conversation.entries
        for child in children:
            if child.index < 0 or child.tools != conversation.tools:
                continue
            place = start
            for canon in (*child.canon, None):
                while parent and place < len(entries) and entries[place].turn == parent.index and entries[place].calls:
                    place += 1
                if canon is None or place >= len(entries) or _canon(entries[place].message) != canon:
                    break
                place += 1
            else:
                raise AssertionError
            if canon is None and place < len(entries) and self._is_turn(child, entries[place:]):
                yield child, place + 1
                yield from self._ends(conversation, child, child.children, place + 1)

    def _is_turn(self, node: Node, entries: Sequence[Entry]) -> bool:
        first = entries[0].message
        if first["role"] != "assistant":
            return False
        made = {call["id"] for call in node.reply.get("tool_calls") or ()}
        if made:
            parts = [entry for entry in entries if entry.turn == node.index]
            shown = {call["id"] for part in parts for call in part.calls}
            return entries[0].turn == node.index and shown == made and all(part.same for part in parts)
        _, text, calls, _, reasoning = _canon(first)
        _, said, _, _, thought = _canon(node.reply)
        return not calls and text.strip() == said.strip() and reasoning.strip() in ("", thought.strip())

    def _shown(self, entries: Sequence[Entry]) -> list[Wire]:
        """The messages, with the thinking of turns with calls that the harness left out."""
        restored: set[int] = set()
        shown: list[Wire] = []
        for entry in entries:
            message = {**entry.message, "content": _text(entry.message)}
            if entry.turn is not None and entry.calls and not message.get("reasoning_content"):
                thought = self.turns[entry.turn].reply.get("reasoning_content")
                if thought and entry.turn not in restored:
                    message["reasoning_content"] = thought.strip()
                    restored.add(entry.turn)
            shown.append(message)
        return shown

    def _continued(self, parent: Node, given: list[Wire], tools: list[Wire] | None) -> list[int] | None:
        """Prompt of a request that goes on from `parent`; None where earlier text would change."""
        before = [message for node in parent.path for message in (*node.given, node.reply)][:-1]
        turn = _stand_in(parent.reply)
        text = self._rendering.text([*before, turn, *given], tools)
        asked = _hidden(self._rendering.text(_told_apart(before), tools).removesuffix(self._generation_prompt))
        if not _hidden(self._rendering.text(_told_apart([*before, turn, *given]), tools)).startswith(asked):
            return None
        rest = text[text.rindex(_MARK) :]
        ends = (*self._family.ends, *_HISTORY_ENDS.get(self._family.name, ()))
        place, end = min((place, end) for end in ends if (place := rest.find(end)) >= 0)
        sampled_ends = [end] if self._family.name in _NO_OWN_END else self._family.ends
        ended = parent.sampled[-1] in [self._rendering.ids[token] for token in sampled_ends]
        following = self._rendering.encode(rest[place:])
        return [*parent.prompt, *parent.sampled, *(following[1:] if ended else following)]


def _stand_in(reply: Wire) -> Wire:
    if not reply.get("tool_calls"):
        return {"role": "assistant", "content": _MARK}
    *others, last = reply["tool_calls"]
    marked = {**last, "function": {**last["function"], "arguments": f'{{"k": "{_MARK}"}}'}}
    return {"role": "assistant", "content": "", "tool_calls": [*others, marked]}


def _told_apart(messages: Sequence[Wire]) -> list[Wire]:
    """Without thinking, and without two equal user messages, which Mistral's template takes for one another."""
    return [
        {key: value for key, value in message.items() if key != "reasoning_content"}
        | ({"content": f"{place} {message['content']}"} if message["role"] == "user" else {})
        for place, message in enumerate(messages)
    ]


def _hidden(text: str) -> str:
    return _HIDDEN.sub("", text)


def _same(nodes: list[Node], tools: int, given: Sequence[Entry]) -> Node | None:
    canons = _canons(given)
    return next((node for node in nodes if node.tools == tools and node.canon == canons), None)


def _canons(entries: Sequence[Entry]) -> tuple[Canon, ...]:
    return tuple(_canon(entry.message) for entry in entries)


def _canon(message: Wire) -> Canon:
    calls = tuple(
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    reasoning = message.get("reasoning_content") or ""
    return message["role"], _text(message), calls, message.get("tool_call_id"), reasoning


def _text(message: Wire) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
