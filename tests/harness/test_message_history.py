"""Messages that are converted once are those that converting the whole event log gives."""

from collections.abc import Iterator

from hypothesis import assume, given
from hypothesis import strategies as st

from drydock.harness.message_history import MessageHistory
from drydock.harness.sdk import (
    ActionEvent,
    AgentErrorEvent,
    LLMConvertibleEvent,
    Message,
    MessageEvent,
    ObservationEvent,
)
from drydock.harness.tools.base import TextObservation
from drydock.harness.tools.think import ThinkAloudAction

KINDS = st.sampled_from(["user", "assistant", "call", "same reply's call", "result", "error"])


def event(kind: str, number: int, reply: int) -> LLMConvertibleEvent:
    name = f"call_{number}"
    content = Message.model_validate({"role": "user", "content": f"{kind} {number}"}).content
    match kind:
        case "user":
            return MessageEvent(source="user", llm_message=Message(role="user", content=content))
        case "assistant":
            return MessageEvent(source="agent", llm_message=Message(role="assistant", content=content))
        case "result":
            return ObservationEvent(
                observation=TextObservation.from_text(kind), action_id=name, tool_name="think", tool_call_id=name
            )
        case "error":
            return AgentErrorEvent(error=f"wrong {number}", tool_name="think", tool_call_id=name)
    call = {"id": name, "name": "think", "arguments": '{"thought": "x"}', "origin": "completion"}
    return ActionEvent.model_validate(
        {
            "thought": [] if kind == "same reply's call" else content,
            "action": ThinkAloudAction(thought="x"),
            "tool_name": "think",
            "tool_call_id": name,
            "tool_call": call,
            "llm_response_id": f"reply_{reply}",
        }
    )


def log_of(kinds: list[str]) -> Iterator[LLMConvertibleEvent]:
    reply = 0
    for number, kind in enumerate(kinds):
        reply += kind == "call"
        yield event(kind, number, reply)


@given(st.lists(KINDS, max_size=24), st.lists(st.integers(0, 24), max_size=8))
def test_a_growing_log_gives_the_messages_of_the_whole(kinds: list[str], lengths: list[int]) -> None:
    events = list(log_of(kinds))
    history = MessageHistory()
    for length in sorted(lengths):
        seen = events[:length]
        assert history.of(seen) == LLMConvertibleEvent.events_to_messages(seen)
    assert history.of(events) == LLMConvertibleEvent.events_to_messages(events)


@given(st.lists(KINDS, max_size=16), st.integers(1, 16), st.integers(0, 16))
def test_a_log_that_lost_events_is_converted_anew(kinds: list[str], start: int, length: int) -> None:
    assume(start == 1 or kinds[start : start + 1] != ["same reply's call"])  # the SDK cuts no reply in two
    events = list(log_of(kinds))
    history = MessageHistory()
    history.of(events)
    condensed = events[:1] + events[start : start + length]
    assert history.of(condensed) == LLMConvertibleEvent.events_to_messages(condensed)
    assert history.of(events) == LLMConvertibleEvent.events_to_messages(events)


def test_only_what_is_new_is_converted() -> None:
    events = list(log_of(["user", "call", "result", "call", "result", "call", "result"]))
    history = MessageHistory()
    early = history.of(events[:5])
    late = history.of(events)
    assert all(before is after for before, after in zip(early, late, strict=False))
    assert (len(early), len(late)) == (5, 7)
