"""A conversation to its training row, with the tokens, separators and masks that it would have as a rollout.

It is played through the proxy's own ledger, the given assistant turns standing in for sampled ones. The text of a turn
is the difference of two renderings by the model's chat template: the conversation with the turn, and the conversation
before it with the generation prompt. Its tokens, the end of the turn included, have loss mask 1, all others 0. Where
the first rendering does not begin with the second, or writes something else after the turn's end, tokens could not be
told apart exactly, and the conversation is refused; so is one whose thinking the template does not write.
"""

from collections.abc import Sequence
from typing import Any

from drydock.chat.messages import Message
from drydock.chat.parsers.base import ParsedReply
from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError, TemplateError
from drydock.proxy.ledger import Ledger
from drydock.proxy.sampler import SampledTurn
from drydock.training.batch import Row


def supervised_row(
    messages: Sequence[Message], tools: list[dict[str, Any]] | None, template: ChatTemplate, origin: str
) -> Row:
    """The row of a conversation; messages after its last assistant turn are left out.

    Raises ConfigError, naming `origin`, for a conversation that the template cannot render exactly.
    """
    ledger = Ledger(template)
    turns = 0
    try:
        for place, message in enumerate(messages):
            if message.role == "assistant":
                prompt = ledger.extend(messages[:place], tools)
                ids = turn_ids(messages, place, tools, template)
                turn = SampledTurn(ids, (0.0,) * len(ids), 0, "stop", "")
                ledger.record(prompt, turn, _as_reply(message))
                turns += 1
    except TemplateError as error:
        raise ConfigError(f"{origin}: {error}") from error
    samples = ledger.samples()
    if len(samples) != 1 or len(samples[0].turn_indices) != turns:
        raise ConfigError(
            f"{origin}: its turns are no single history (are ids of tool calls used twice?); make the ids unique"
        )
    return Row(samples[0].token_ids, samples[0].loss_mask, samples[0].logprobs, advantage=0.0, weight=1.0)


def _as_reply(message: Message) -> ParsedReply:
    return ParsedReply(message.text or None, message.calls, message.reasoning or None)


def turn_ids(
    messages: Sequence[Message], place: int, tools: list[dict[str, Any]] | None, template: ChatTemplate
) -> tuple[int, ...]:
    """The tokens that a policy would sample as `messages[place]`: as the template writes it, its end token included.

    Raises TemplateError when the template does not show them exactly.
    """
    forms = [message.template_form() for message in messages[: place + 1]]
    return template.turn_ids(forms, tools)
