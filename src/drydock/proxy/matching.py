"""How a request's messages are matched to sampled turns.

A turn with tool calls is recognised by their ids, because the agent's SDK re-serialises arguments, renames tools, drops
blank content and reasoning, and may replay one turn as several assistant messages with results in between; it must
still say what was sampled (`drydock.proxy.same_call`). A turn without calls is recognised by its place and its text.
Outer whitespace does not count, missing content beside calls and missing reasoning neither. Everything that the harness
wrote (system, user and tool messages, assistant messages that were never sampled) must be equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from drydock.chat.messages import NO_CALLS, Message, ToolCall
from drydock.chat.parsers.base import ParsedReply
from drydock.proxy.same_call import same_call


@dataclass(frozen=True, slots=True)
class Said:
    """What a sampled turn said, without outer whitespace; calls by id."""

    text: str
    reasoning: str
    calls: Mapping[str, ToolCall]
    call_ids: frozenset[str]


class Replay(Enum):
    """What became of a sampled turn in a request."""

    SAME = auto()
    ABSENT = auto()
    TEXT_CHANGED = auto()
    REASONING_CHANGED = auto()
    CALLS_MISSING = auto()
    CALL_REPAIRED = auto()


def said(reply: ParsedReply) -> Said:
    """What `reply` says."""
    calls = {call.id: call for call in reply.calls}
    return Said((reply.content or "").strip(), (reply.reasoning or "").strip(), calls, frozenset(calls))


def continues_turn(message: Message, call_ids: frozenset[str]) -> bool:
    """Whether `message` is (a part of) the sampled turn that made `call_ids`."""
    return message.role == "assistant" and bool(message.calls) and message.call_ids <= call_ids


def given_messages(messages: Sequence[Message], start: int, call_ids: frozenset[str]) -> tuple[Message, ...]:
    """`messages[start:]` without further parts of the turn that made `call_ids` and begins just before `start`."""
    if not call_ids:
        return tuple(messages[start:])
    given: list[Message] = []
    place, seen = start, messages[start - 1].call_ids
    while place < len(messages):
        place, seen = _skip_parts(messages, place, call_ids, seen)
        given += messages[place : place + 1]
        place += 1
    return tuple(given)


def match_given(
    messages: Sequence[Message], start: int, given: Sequence[Message], turn_call_ids: frozenset[str]
) -> int | None:
    """The place after `given` in `messages` from `start`, skipping parts of the turn before it; None if unequal."""
    place, seen = start, messages[start - 1].call_ids if turn_call_ids else NO_CALLS
    for expected in given:
        place, seen = _skip_parts(messages, place, turn_call_ids, seen)
        if place >= len(messages) or messages[place] != expected:
            return None
        place += 1
    return _skip_parts(messages, place, turn_call_ids, seen)[0]


def replay_of(turn: Said, messages: Sequence[Message], place: int) -> Replay:
    """What became of `turn` in the messages from `place` on, where it has to begin."""
    if place >= len(messages) or messages[place].role != "assistant":
        return Replay.ABSENT
    message = messages[place]
    if not turn.call_ids:
        if message.calls or message.text.strip() != turn.text:
            return Replay.TEXT_CHANGED
        return _reasoning(turn, message)
    if not continues_turn(message, turn.call_ids):
        return Replay.CALL_REPAIRED if message.call_ids & turn.call_ids else Replay.TEXT_CHANGED
    seen: frozenset[str] = NO_CALLS
    for part in messages[place:] if len(message.call_ids) < len(turn.call_ids) else (message,):
        if part.role != "assistant":
            continue
        if not continues_turn(part, turn.call_ids):
            break
        if part.text.strip() not in ("", turn.text):
            return Replay.TEXT_CHANGED
        if not all(same_call(turn.calls[call.id], call) for call in part.calls):
            return Replay.CALL_REPAIRED
        if (reasoning := _reasoning(turn, part)) is not Replay.SAME:
            return reasoning
        seen |= part.call_ids
        if seen == turn.call_ids:
            return Replay.SAME
    return Replay.CALLS_MISSING


def _reasoning(turn: Said, message: Message) -> Replay:
    shown = message.reasoning.strip()
    return Replay.SAME if shown in ("", turn.reasoning) else Replay.REASONING_CHANGED


def _skip_parts(
    messages: Sequence[Message], place: int, call_ids: frozenset[str], seen: frozenset[str]
) -> tuple[int, frozenset[str]]:
    """The place after further parts of a turn, and the ids of its calls that were seen by then.

    A call that is shown once more is no part: the policy did not make it twice.
    """
    while place < len(messages) and continues_turn(messages[place], call_ids) and not messages[place].call_ids & seen:
        seen |= messages[place].call_ids
        place += 1
    return place, seen
