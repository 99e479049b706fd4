"""Demonstrations of a run's warm start: conversations without a system message, to which the run adds its own.

They are read and tokenized as any supervised data is (`drydock.training.sft`), under the run's system prompt and tools,
so a supervised row has the same tokens, separators and masks that the same conversation would have as a rollout.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from drydock.chat.messages import parse_message
from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError
from drydock.training.batch import Row
from drydock.training.sft.conversations import Conversation, read_conversations
from drydock.training.sft.rows import supervised_row

SETTING = "warm_start.conversations"


def read_demonstrations(file: Path) -> list[Conversation]:
    """The conversations of a file. Raises ConfigError naming the file and line of what is wrong."""
    conversations = read_conversations(file, SETTING)
    for conversation in conversations:
        if conversation.messages[0].role == "system":
            raise ConfigError(f"{conversation.origin}: starts with a system message; leave it out, the run has its own")
        if conversation.tools is not None:
            raise ConfigError(f"{conversation.origin}: tools are the run's here; leave them out")
    return conversations


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
        yield supervised_row((system, *conversation.messages), tools, template, conversation.origin)
