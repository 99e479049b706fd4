"""The chat messages of an event log that grows, each event converted once.

The SDK converts the whole log before every call, which makes a rollout quadratic in its turns. Here the messages up to
the latest tool result are kept. That is a place where converting in two halves gives what converting the whole gives:
the SDK merges only neighbouring user messages and neighbouring calls of one reply, never across a tool result.
"""

from collections.abc import Callable, Sequence

from drydock.harness.sdk import LLMConvertibleEvent, Message, ObservationBaseEvent


class MessageHistory:
    """Of one rollout. A log that does not go on from the one before (condensed, edited) is converted anew."""

    def __init__(self) -> None:
        self._events: list[LLMConvertibleEvent] = []
        self._messages: list[Message] = []

    def of(self, events: Sequence[LLMConvertibleEvent]) -> list[Message]:
        """The messages of `events`, as `LLMConvertibleEvent.events_to_messages` makes them; not to be changed."""
        kept = len(self._events)
        if len(events) < kept or any(ours is not theirs for ours, theirs in zip(self._events, events, strict=False)):
            kept, self._messages = 0, []
        new = LLMConvertibleEvent.events_to_messages(list(events[kept:]))
        messages = self._messages + new
        settled = _after_last(events[kept:], lambda event: isinstance(event, ObservationBaseEvent))
        self._events = list(events[: kept + settled])
        self._messages = self._messages + new[: _after_last(new, lambda message: message.role == "tool")]
        return messages


def _after_last[Item](items: Sequence[Item], found: Callable[[Item], bool]) -> int:
    """The place behind the last of `items` that is `found`; 0 where none is."""
    return next((place + 1 for place in reversed(range(len(items))) if found(items[place])), 0)
