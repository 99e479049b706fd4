"""Demonstration conversations to supervised rows, tokenized exactly as rollouts are.

Each conversation is played through the proxy's own ledger with the run's system prompt and tools, the demonstrated
assistant turns standing in for sampled ones. So a supervised row has the same tokens, separators and masks that the
same conversation would have as a rollout.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.errors import ConfigError, TemplateError
from drydock.proxy.ledger import Ledger
from drydock.proxy.messages import Message, parse_message
from drydock.proxy.parsers.base import ParsedReply
from drydock.proxy.record import LedgerSample
from drydock.proxy.refusal import RequestRefused
from drydock.proxy.sampler import SampledTurn
from drydock.proxy.template import ChatTemplate
from drydock.training.batch import Row


@dataclass(frozen=True, slots=True)
class Conversation:
    """messages: without the system message. origin: `file:line`, for error messages."""

    messages: tuple[Message, ...]
    origin: str


def read_conversations(file: Path) -> list[Conversation]:
    """The conversations of a JSON Lines file. Raises ConfigError naming the file and line of what is wrong."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"warm_start.conversations: cannot read {file}: {error}") from None
    conversations = [
        _read_conversation(line, f"{file}:{number}") for number, line in enumerate(lines, start=1) if line.strip()
    ]
    if not conversations:
        raise ConfigError(f"warm_start.conversations: {file} holds no conversation")
    return conversations


def _read_conversation(line: str, origin: str) -> Conversation:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{origin}: not JSON: {error}") from None
    raw = entry.get("messages") if isinstance(entry, dict) else None
    if not isinstance(raw, list):
        raise ConfigError(f'{origin}: expected {{"messages": […]}}')
    try:
        messages = tuple(parse_message(message, place) for place, message in enumerate(raw))
    except RequestRefused as error:
        raise ConfigError(f"{origin}: {error}") from None
    roles = [message.role for message in messages]
    if not roles or roles[0] != "user" or "assistant" not in roles:
        raise ConfigError(f"{origin}: a conversation starts with a user message and holds an assistant's")
    return Conversation(messages, origin)


def supervised_rows(
    conversations: Sequence[Conversation],
    template: ChatTemplate,
    system_prompt: str,
    tools: list[dict[str, Any]],
) -> Iterator[Row]:
    """One row a conversation; loss mask 1 on the assistant's tokens, the end of its turns included.

    Raises ConfigError naming the line of a conversation that the template cannot render.
    """
    system = parse_message({"role": "system", "content": system_prompt}, 0)
    for conversation in conversations:
        try:
            samples = _played([system, *conversation.messages], tools, template)
        except TemplateError as error:
            raise ConfigError(f"{conversation.origin}: {error}") from error
        for sample in samples:
            yield Row(sample.token_ids, sample.loss_mask, sample.logprobs, advantage=0.0, weight=1.0)


def _played(messages: Sequence[Message], tools: list[dict[str, Any]], template: ChatTemplate) -> list[LedgerSample]:
    """The ledger's samples after the conversation was played through it."""
    ledger = Ledger(template)
    for place, message in enumerate(messages):
        if message.role == "assistant":
            prompt = ledger.extend(messages[:place], tools)
            ids = turn_ids(message, template)
            turn = SampledTurn(ids, (0.0,) * len(ids), 0, "stop", "")
            ledger.record(prompt, turn, ParsedReply(message.text or None, message.calls))
    return ledger.samples()


def turn_ids(message: Message, template: ChatTemplate) -> tuple[int, ...]:
    """The tokens a policy would sample for an assistant message: as the template writes it, its end token included."""
    question = {"role": "user", "content": "?"}
    before = template.render([question], None, True)
    whole = template.render([question, message.template_form()], None, False)
    text, end, _ = whole.removeprefix(before).rpartition(template.turn_end)
    if not whole.startswith(before) or not end:
        raise TemplateError(
            f"the chat template of {template.origin} does not write an assistant turn after its generation prompt; "
            "demonstrations cannot be tokenized as the policy would sample them"
        )
    return tuple(template.encode(text + end))
