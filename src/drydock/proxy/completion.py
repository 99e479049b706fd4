"""One sampled turn as every dialect gets it: what the agent is answered, before it is put in some API's form."""

from dataclasses import dataclass
from enum import StrEnum

from drydock.chat.parsers.base import ParsedReply


class FinishReason(StrEnum):
    """Why a turn ended; a turn that holds tool calls ended in them, however its tokens ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Completion:
    """A turn that is sampled and written down. Equal for equal requests, so a retry gets the same one.

    id: unique in a run, without any API's prefix. created: Unix time in seconds at which sampling began.
    model: the name that the agent called the policy by.
    prompt_tokens: all tokens of the prompt; cached_tokens: those of them that the rollout's recorded history already
    held. completion_tokens: sampled ones, stop token included.
    """

    id: str
    created: int
    model: str
    reply: ParsedReply
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


def finish_reason(reply: ParsedReply, sampler_finish: str) -> FinishReason:
    """The finish reason of a turn that the sampler ended with `stop` or `length`."""
    if reply.calls:
        return FinishReason.TOOL_CALLS
    return FinishReason.LENGTH if sampler_finish == "length" else FinishReason.STOP
