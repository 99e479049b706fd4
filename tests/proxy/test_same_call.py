import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.chat.messages import ToolCall
from drydock.proxy.same_call import same_call

LEAVES = st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False, width=32) | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
ARGUMENTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def call(arguments: str, name: str = "terminal") -> ToolCall:
    return ToolCall("call_1", name, arguments)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@given(arguments=ARGUMENTS, escaped=st.booleans(), spaced=st.booleans(), nulls=st.booleans(), turned=st.booleans())
def test_a_call_that_is_written_anew_is_the_same(
    arguments: dict[str, Any], escaped: bool, spaced: bool, nulls: bool, turned: bool
) -> None:
    shown = arguments if nulls else without_nulls(arguments)
    shown = dict(reversed(shown.items())) if turned else shown
    replayed = json.dumps(shown, ensure_ascii=escaped, indent=2 if spaced else None)
    assert same_call(call(json.dumps(arguments, ensure_ascii=False)), call(replayed))


@given(arguments=ARGUMENTS, one=st.integers() | st.text(max_size=8), other=st.integers() | st.text(max_size=8))
def test_a_call_with_another_value_or_another_key_is_another_call(
    arguments: dict[str, Any], one: str | int, other: str | int
) -> None:
    sampled = call(json.dumps({**arguments, "value": one}))
    if type(one) is type(other) and one != other:
        assert not same_call(sampled, call(json.dumps({**arguments, "value": other})))
    assert not same_call(sampled, call(json.dumps({**arguments, "value": one, "added": other})))
    assert not same_call(call(json.dumps({**arguments, "value": one, "lost": other})), sampled)


@pytest.mark.parametrize(
    ("sampled", "replayed", "same"),
    [
        ('{"a": "[1, {\\"b\\": 2}]"}', '{"a": [1, {"b": 2}]}', True),
        ('{"a": "5"}', '{"a": 5}', True),
        ('{"a": "true"}', '{"a": true}', True),
        ('{"a": 5.0}', '{"a": 5}', True),
        ('{"a": 1, "a": 2}', '{"a": 2}', True),
        ('{"a": "one\ntwo"}', '{"a": "one\\ntwo"}', True),
        ("{}", '{"a": null}', True),
        ('{"a": true}', '{"a": 1}', False),
        ('{"a": "x"}', '{"a": ["x"]}', False),
        ('{"a": ["x", "y"]}', '{"a": "xy"}', False),
        ('{"a": [1, 2]}', '{"a": [1]}', False),
        ('{"a": 1}', '{"a": 1, "b": 2}', False),
        ('{"a": 1, "b": 2}', '{"a": 1}', False),
        ('{"a": 1', '{"a": 1}', False),
        ('{"a": 1', '{"a": 1', True),
        ("{}", "[" * 100_000, False),
    ],
)
def test_what_is_the_same_call(sampled: str, replayed: str, same: bool) -> None:
    assert same_call(call(sampled), call(replayed, "another name")) is same
