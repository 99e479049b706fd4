"""Scripted policies that answer by the number of turns taken, so that many rollouts can share one sampler."""

import json
from collections.abc import Sequence

from builders.scripted_sampler import ScriptedSampler

from drydock.chat.template import ChatTemplate

ASSISTANT = "<|im_start|>assistant"

SOLVE_HELLO = (
    '<tool_call>\n{"name": "terminal", "arguments": {"command":"mkdir -p d && cd d",  "extra": null}}\n</tool_call>',
    'Look first: é\n<tool_call>\n{"name": "terminal", "arguments": {"command":"pwd; echo \\u00e9"}}\n</tool_call>',
    '<tool_call>\n{"name": "terminal", "arguments": {"command": "echo hello > /app/answer.txt"}}\n</tool_call>',
    '<tool_call>\n{"name": "finish", "arguments": {"message": "done"}}\n</tool_call>',
)
"""Solves the task of `builders.tasks`; its arguments are written in ways that the SDK re-serialises."""


def tool_call(name: str, **arguments: object) -> str:
    """A sampled turn with one call."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def by_turn(template: ChatTemplate, replies: Sequence[str], *, delay_s: float = 0.0) -> ScriptedSampler:
    """Turn n of every rollout is `replies[n]`; the last one repeats."""

    def reply(_ids: list[int], text: str) -> str:
        turn = text.count(ASSISTANT) - 1
        return replies[min(turn, len(replies) - 1)]

    return ScriptedSampler(template, reply, delay_s=delay_s)
