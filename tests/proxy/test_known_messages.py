import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.chat.messages import parse_message
from drydock.chat.refusal import RequestRefused
from drydock.proxy.dialects import ANTHROPIC, CHAT, Dialect
from drydock.proxy.known_messages import KnownMessages

MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": st.sampled_from("ab")}),
    st.fixed_dictionaries(
        {
            "role": st.just("user"),
            "content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.sampled_from("ab")})),
        }
    ),
    st.just({"role": "tool", "tool_call_id": "c", "content": "out"}),
    st.just({"role": "oracle"}),
)
HISTORY = st.lists(MESSAGE, min_size=1, max_size=6)


def outcome(dialect: Dialect, messages: list[dict[str, Any]], known: KnownMessages | None) -> object:
    try:
        return dialect.parse(json.dumps({"messages": messages}).encode(), known)
    except RequestRefused as refusal:
        return str(refusal)


@given(calls=st.lists(st.tuples(st.sampled_from([CHAT, ANTHROPIC]), HISTORY), max_size=5))
def test_what_was_read_before_changes_nothing(calls: list[tuple[Dialect, list[dict[str, Any]]]]) -> None:
    known = KnownMessages()
    for dialect, messages in calls:
        assert outcome(dialect, messages, known) == outcome(dialect, messages, None)


def test_messages_that_come_again_are_the_same_objects() -> None:
    def parse(raw: object, place: int) -> tuple[Any]:
        return (parse_message(raw, place),)

    known = KnownMessages()
    raw = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    first = known.read(raw, parse)
    again = known.read([*map(dict, raw), {"role": "user", "content": "c"}], parse)
    assert again[0] is first[0]
    assert again[1] is first[1]
    with pytest.raises(RequestRefused):
        known.read([{"role": "oracle"}], parse)
    assert known.read(raw, parse)[1] is first[1]
