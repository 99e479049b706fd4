"""Demonstration conversations to supervised rows, tokenized exactly as rollouts are.

Each conversation is played through the proxy's own ledger with the run's system prompt and tools, the demonstrated
assistant turns standing in for sampled ones. So a supervised row has the same tokens, separators and masks that the
same conversation would have as a rollout.
"""

import json
from collections.abc import Iterator, Sequence
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


def read_conversations(file: Path) -> list[list[dict[str, Any]]]:
    """The conversations of a JSON Lines file. Raises ConfigError naming the file and line of what is wrong."""
    if not file.is_file():
        raise ConfigError(f"warm_start.conversations: no such file: {file}")
    conversations = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            messages = json.loads(line)["messages"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f'{file}:{number}: expected {{"messages": […]}}') from None
        roles = [message.get("role") for message in messages]
        if not roles or roles[0] != "user" or "assistant" not in roles:
            raise ConfigError(f"{file}:{number}: a conversation starts with a user message and holds an assistant's")
        conversations.append(messages)
    if not conversations:
        raise ConfigError(f"warm_start.conversations: {file} holds no conversation")
    return conversations


def supervised_rows(
    conversations: Sequence[list[dict[str, Any]]],
    template: ChatTemplate,
    system_prompt: str,
    tools: list[dict[str, Any]],
) -> Iterator[Row]:
    """One row a conversation; loss mask 1 on the assistant's tokens, the end of its turns included.

    Raises ConfigError for a message that no chat could hold, TemplateError when the template cannot render one.
    """
    system = {"role": "system", "content": system_prompt}
    for number, raw in enumerate(conversations, start=1):
        try:
            messages = [parse_message(message, place) for place, message in enumerate([system, *raw])]
        except RequestRefused as error:
            raise ConfigError(f"warm_start: conversation {number}: {error}") from None
        for sample in _played(messages, tools, template):
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
