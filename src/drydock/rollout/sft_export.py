"""Histories of rollouts as conversations that `drydock sft` reads as they are.

The conversation of a history is what the harness wrote and what the policy said, so supervised training shows the model
the same tokens as the rollout did wherever its turns are written as its template writes them. Supervised data has no
masks: every assistant message of a conversation is trained. So a history is left out, with the reason, when an
assistant message in it was never sampled, or when the reader would refuse it.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drydock.rollout.history import Branch, branches, messages_of
from drydock.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Exported:
    """A history as a conversation, or why it is none. turn: index of its last turn."""

    rollout_id: str
    turn: int
    conversation: dict[str, Any] | None
    problem: str | None = None


def conversations_of(trajectory: Trajectory, which: Literal["last", "all"]) -> Iterator[Exported]:
    """The rollout's histories: the one that was sampled last, or all (turns that they share are then in each)."""
    found = branches(trajectory.record)
    for branch in found if which == "all" else found[-1:]:
        messages = messages_of(branch.turns)
        problem = _problem(branch, messages)
        conversation = None if problem else {"messages": messages, **_tools(branch, trajectory)}
        yield Exported(trajectory.rollout_id, branch.turns[-1].index, conversation, problem)


def _tools(branch: Branch, trajectory: Trajectory) -> dict[str, Any]:
    tools = branch.turns[-1].tools
    return {} if tools is None else {"tools": trajectory.record.tool_sets[tools]}


def _problem(branch: Branch, messages: Sequence[dict[str, Any]]) -> str | None:
    if any(message["role"] == "assistant" for turn in branch.turns for message in turn.given):
        return "it holds an assistant message that the policy did not say"
    if len({turn.tools for turn in branch.turns}) > 1:
        return "its tools change on the way"
    roles = [message["role"] for message in messages]
    if roles[roles[0] == "system" :][:1] != ["user"]:
        return "it does not begin with a user message"
    if any(pair == ("assistant", "assistant") for pair in itertools.pairwise(roles)):
        return "an assistant message follows another"
    if not all(turn.reply.get("content") or turn.reply.get("tool_calls") for turn in branch.turns):
        return "a turn in it says nothing"
    return None
