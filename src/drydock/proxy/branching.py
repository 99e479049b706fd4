"""How a request's messages are matched to sampled turns, and what a mismatch is called.

A turn with tool calls is recognised by their ids alone: the agent's SDK re-serialises arguments, drops nulls, renames
tools, drops blank content, and may replay one turn as several assistant messages with results in between. A turn
without calls is recognised by its place and its text, outer whitespace aside. Everything that the harness wrote
(system, user and tool messages, assistant messages that were never sampled) must be equal.
"""

from collections.abc import Sequence
from enum import StrEnum

from drydock.chat.messages import Message


class BranchReason(StrEnum):
    """Why a request did not extend the history that was there."""

    TOOLS_CHANGED = "tools_changed"
    SYSTEM_CHANGED = "system_changed"
    USER_CHANGED = "user_changed"
    TOOL_CHANGED = "tool_changed"
    ASSISTANT_CHANGED = "assistant_changed"
    TOOL_CALLS_MISSING = "tool_calls_missing"
    HISTORY_SHORTENED = "history_shortened"
    HISTORY_REWRITTEN = "history_rewritten"


_CHANGED = {
    "system": BranchReason.SYSTEM_CHANGED,
    "user": BranchReason.USER_CHANGED,
    "tool": BranchReason.TOOL_CHANGED,
    "assistant": BranchReason.ASSISTANT_CHANGED,
}


def continues_turn(message: Message, call_ids: frozenset[str]) -> bool:
    """Whether `message` is (a part of) the sampled turn that made `call_ids`."""
    return message.role == "assistant" and bool(message.calls) and message.call_ids <= call_ids


def given_messages(messages: Sequence[Message], start: int, call_ids: frozenset[str]) -> tuple[Message, ...]:
    """`messages[start:]` without further parts of the turn that made `call_ids`."""
    if not call_ids:
        return tuple(messages[start:])
    return tuple(message for message in messages[start:] if not continues_turn(message, call_ids))


def match_given(
    messages: Sequence[Message], start: int, given: Sequence[Message], turn_call_ids: frozenset[str]
) -> int | None:
    """The place after `given` in `messages` from `start`, skipping parts of the turn before it; None if unequal."""
    place = start
    for expected in given:
        place = _skip_parts(messages, place, turn_call_ids)
        if place >= len(messages) or messages[place] != expected:
            return None
        place += 1
    return _skip_parts(messages, place, turn_call_ids)


def match_turn(messages: Sequence[Message], place: int, text: str, call_ids: frozenset[str]) -> bool:
    """Whether `messages[place]` begins the sampled turn of this content and these tool calls, none of them missing."""
    if place >= len(messages):
        return False
    message = messages[place]
    if not call_ids:
        return message.role == "assistant" and not message.calls and message.text.strip() == text.strip()
    if not continues_turn(message, call_ids):
        return False
    seen: frozenset[str] = frozenset()
    for at in range(place, len(messages)):
        part = messages[at]
        if part.role != "assistant":
            continue
        if not continues_turn(part, call_ids) or part.text.strip() not in ("", text.strip()):
            return False
        seen |= part.call_ids
        if seen == call_ids:
            return True
    return False


def mismatch(rest: Sequence[Message], given: Sequence[Message], turn_call_ids: frozenset[str] | None) -> BranchReason:
    """Name the first difference between what a request has (`rest`) and what was recorded at the same place.

    given: the recorded harness messages; turn_call_ids: ids of the turn that was sampled after them, None if none yet.
    """
    for expected, got in zip(given, rest, strict=False):
        if expected != got:
            return _CHANGED[got.role] if expected.role == got.role else BranchReason.HISTORY_REWRITTEN
    if len(rest) <= len(given):
        return BranchReason.HISTORY_SHORTENED
    following = rest[len(given)]
    if following.role != "assistant" or turn_call_ids is None:
        return BranchReason.HISTORY_REWRITTEN
    if continues_turn(following, turn_call_ids):
        seen = frozenset(identity for part in rest if continues_turn(part, turn_call_ids) for identity in part.call_ids)
        if seen != turn_call_ids:
            return BranchReason.TOOL_CALLS_MISSING
    return BranchReason.ASSISTANT_CHANGED


def _skip_parts(messages: Sequence[Message], place: int, call_ids: frozenset[str]) -> int:
    if call_ids:
        while place < len(messages) and continues_turn(messages[place], call_ids):
            place += 1
    return place
