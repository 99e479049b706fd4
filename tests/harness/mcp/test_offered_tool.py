"""Names and schemas of MCP servers' tools, as the model sees them."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import TaskError
from drydock.harness.mcp.offered_tool import MAX_DESCRIPTION_CHARS, offered_tools

OWN = {"terminal", "finish"}


def tool(name: str, **schema) -> dict:
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object", **schema}}


def names(*listed: tuple[str, list[str]]) -> list[str]:
    return [one.name for one in offered_tools([(server, [tool(name) for name in own]) for server, own in listed], OWN)]


def test_clear_names_are_the_servers_own_in_their_order():
    assert names(("a", ["zoo", "bar"]), ("b", ["foo"])) == ["zoo", "bar", "foo"]


def test_a_name_that_another_tool_has_gets_its_servers_in_front():
    assert names(("a", ["read", "terminal"]), ("b", ["read", "write"])) == ["a_read", "a_terminal", "b_read", "write"]


def test_a_name_that_no_model_can_call_is_made_callable():
    assert names(("git.hub", ["issues/list", "x y"])) == ["git_hub_issues_list", "git_hub_x_y"]


@pytest.mark.parametrize(
    "listed",
    [
        [("a", ["x", "x"])],
        [("a", ["terminal", "a_terminal"])],
        [("a.b", ["x"]), ("a_b", ["x"])],
        [("a" * 60, ["terminal"])],
        [("a", ["x" * 65])],
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(listed):
    with pytest.raises(TaskError, match=r"cannot be offered.*rename it"):
        names(*listed)


@given(
    st.dictionaries(
        st.text("ab.-_é", min_size=1, max_size=6),
        st.lists(st.text("tx/_ ", min_size=1, max_size=5), max_size=4),
        max_size=3,
    )
)
def test_names_are_unique_callable_and_nobody_elses(listed):
    try:
        offered = names(*listed.items())
    except TaskError:
        return
    assert len(set(offered)) == len(offered)
    assert not OWN & set(offered)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in offered)


def test_a_schema_is_the_servers_without_what_no_model_needs():
    properties = {
        "title": {"type": "string", "title": "Title", "default": {"title": "kept"}},
        "kind": {"enum": ["a", {"title": "kept"}]},
    }
    given_tool = tool("t", **{"$schema": "http://x", "title": "Args", "properties": properties, "required": ["title"]})
    (offered,) = offered_tools([("s", [given_tool])], OWN)
    assert offered.schema == {
        "type": "function",
        "function": {
            "name": "t",
            "description": "Do t.",
            "parameters": {
                "type": "object",
                "properties": {
                    "title": {"type": "string", "default": {"title": "kept"}},
                    "kind": {"enum": ["a", {"title": "kept"}]},
                },
                "required": ["title"],
            },
        },
    }


def test_an_argument_that_the_sdk_takes_is_renamed_for_the_model_only():
    risky = tool("t", properties={"security_risk": {"type": "string"}, "x": {}}, required=["security_risk"])
    (offered,) = offered_tools([("s", [risky])], OWN)
    parameters = offered.schema["function"]["parameters"]
    assert (list(parameters["properties"]), parameters["required"]) == (["security_risk_", "x"], ["security_risk_"])
    assert offered.for_the_server({"security_risk_": "high", "x": 1}) == {"security_risk": "high", "x": 1}


def test_a_required_argument_without_a_name_is_left_out():
    (offered,) = offered_tools([("s", [tool("t", properties={"a": {}}, required=[["a"], "a", {}])])], OWN)
    assert offered.schema["function"]["parameters"]["required"] == ["a"]


def test_tools_without_parameters_or_description_have_empty_ones():
    (offered,) = offered_tools([("s", [{"name": "t"}])], OWN)
    assert offered.schema["function"] == {
        "name": "t",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }


def test_what_every_turn_would_pay_for_is_bounded():
    (offered,) = offered_tools([("s", [{"name": "t", "description": "x" * 10_000}])], OWN)
    assert len(offered.schema["function"]["description"]) < MAX_DESCRIPTION_CHARS + 100
    with pytest.raises(TaskError, match=r"'big' of the MCP server 's' has a schema of \d+ characters"):
        offered_tools([("s", [tool("big", properties={"x": {"description": "x" * 60_000}})])], OWN)


@pytest.mark.parametrize("bad", [{"name": 1}, {}, {"name": "t", "inputSchema": {"type": "string"}}])
def test_what_is_no_tool_is_the_tasks_fault(bad):
    with pytest.raises(TaskError, match="MCP server 's'"):
        offered_tools([("s", [bad])], OWN)


def test_the_same_lists_make_the_same_bytes():
    listed = [("s", [tool("b", properties={"z": {}, "a": {}}), tool("a")])]
    first, second = (json.dumps([one.schema for one in offered_tools(listed, OWN)]) for _ in range(2))
    assert first == second
