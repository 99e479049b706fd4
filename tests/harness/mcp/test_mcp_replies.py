"""HTTP replies, event streams, results and messages, as servers write them and as they should not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.harness.mcp.event_stream import EventStream
from drydock.harness.mcp.failures import NoAnswer
from drydock.harness.mcp.hiding import LEAST_SECRET_CHARS, Hiding
from drydock.harness.mcp.http_reply import MAX_BODY_CHARS, SHOWN_CHARS, HttpReply
from drydock.harness.mcp.messages import answer_to, messages_in
from drydock.harness.mcp.tool_result import rendered_result

STREAM = ["HTTP/1.1 200 OK\r", "Content-Type: text/event-stream; charset=utf-8\r", "Mcp-Session-Id: s1\r", "\r"]
ANY_TEXT = st.text(st.characters() | st.sampled_from("\ud800\udfff"))
"""With halves of surrogate pairs, which JSON can spell."""

EVENTS = [": comment", "event: message", "id: 7", "data: one", "data:two", "", "retry: 10", "", "data: three\r", "\r"]


def test_events_are_found_wherever_the_lines_are_cut():
    for cut in range(len(STREAM) + len(EVENTS)):
        lines, reply = [*STREAM, *EVENTS], HttpReply()
        events = reply.feed(lines[:cut]) + reply.feed(lines[cut:])
        assert events == [("message", "one\ntwo"), ("message", "three")]
    assert reply.headers["mcp-session-id"] == "s1"
    assert reply.problem() is None


def test_a_body_comes_behind_what_was_said_on_the_way():
    reply = HttpReply()
    assert reply.feed(["HTTP/1.1 100 Continue\r", "\r", "HTTP/2 404 \r", "a: b\r", "\r", "no such", "session"]) == []
    assert (reply.status, reply.headers) == (404, {"a": "b"})
    assert reply.problem() == "it answered with HTTP status 404: no such\nsession"


def test_redirections_and_what_is_no_http_are_problems():
    moved = HttpReply()
    moved.feed(["HTTP/1.1 307 Temporary Redirect\r", "Location: /mcp/\r", "\r"])
    assert moved.problem() == "it answered with HTTP status 307 Temporary Redirect (to /mcp/)"
    other = HttpReply()
    other.feed(["220 ready", ""])
    assert other.problem() == "it answered with something that is not HTTP"


@pytest.mark.parametrize(
    ("head", "line"),
    [
        (["HTTP/1.1 200 OK\r", "\r"], "x"),
        (["HTTP/1.1 200 OK\r"], "x: "),
        (STREAM, "data: "),
    ],
)
def test_bodies_heads_and_events_are_bounded(head, line):
    reply, fill = HttpReply(), "x" * (MAX_BODY_CHARS // 4)
    with pytest.raises(NoAnswer, match="more than"):
        reply.feed([*head, *(f"{number}{line}{fill}" if line == "x: " else f"{line}{fill}" for number in range(5))])


def test_a_stream_of_many_events_is_not_bounded():
    reply, fill = HttpReply(), "x" * (MAX_BODY_CHARS // 4)
    assert len(reply.feed([*STREAM, *[f"data: {fill}", ""] * 5])) == 5


def test_a_head_is_there_when_all_of_it_is():
    reply = HttpReply()
    reply.feed(STREAM[:2])
    assert (reply.status, reply.has_head) == (200, False)
    reply.feed(STREAM[2:])
    assert (reply.is_stream, reply.has_head) == (True, True)


def test_a_secret_is_hidden_before_a_reply_is_cut():
    reply = HttpReply(hide=Hiding.of(["open-sesame"]))
    reply.feed(["HTTP/1.1 401 No\r", "\r", "x" * (SHOWN_CHARS - 5) + "open-sesame"])
    assert "open" not in (reply.problem() or "")


@given(st.lists(st.text()))
def test_any_lines_can_be_read(lines):
    HttpReply().feed(lines)
    stream = EventStream()
    for line in lines:
        stream.feed(line)
    assert all(isinstance(message, dict) for message in messages_in(lines))


def test_messages_are_found_among_junk_and_in_batches():
    assert messages_in(["", "log", '[{"id": 1}, 2]', "null", '{"id": 2}', "[" * 100_000]) == [{"id": 1}, {"id": 2}]


def test_what_is_nested_beyond_reason_is_no_message():
    deep = {"id": 1}
    for _ in range(500):
        deep = {"id": 1, "result": deep}
    assert messages_in([json.dumps(deep), '{"id": 2}']) == [{"id": 2}]


@given(st.integers(1, len("open-sesame") - LEAST_SECRET_CHARS), st.text())
def test_nothing_of_a_secret_is_left_wherever_its_beginning_is_lost(lost, rest):
    hide = Hiding.of(["open-sesame"])
    assert hide.end_of(f"{'open-sesame'[lost:]}|{rest}", 10_000) == hide(f"|{rest}").strip()


def test_longer_secrets_are_hidden_first_and_short_ones_not():
    assert Hiding.of(["pass", "passport", "abc"])("passport pass abc") == "[hidden] [hidden] abc"


def test_what_a_server_asks_is_answered():
    assert answer_to({"id": 1, "method": "ping"}) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert answer_to({"id": "a", "method": "roots/list"})["result"] == {"roots": []}
    assert answer_to({"id": 2, "method": "elicitation/create"})["error"]["code"] == -32601
    assert len(json.dumps(answer_to({"id": 3, "method": "x" * 10_000}))) < 300


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "image", "data": "A", "mimeType": "image/png"}]}, "[image of type image/png left out]"),
        ({"content": [{"type": "audio", "data": "A"}]}, "[audio of type unknown left out]"),
        ({"content": [{"type": "resource_link", "uri": "file:///a"}]}, "[link to the resource file:///a]"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "u", "blob": "A", "mimeType": "a/b"}}]},
            "[resource u of type a/b left out]",
        ),
        ({"content": [], "structuredContent": {"é": 1}}, '{"é": 1}'),
        ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"x": 1}}, "a"),
        ({"content": []}, "[no output]"),
        ({}, "[no output]"),
        ({"content": "wrong"}, "[no output]"),
        (
            {"content": [{"type": "text"}, {}, 1]},
            "[text of type unknown left out]\n[content of no known type left out]",
        ),
    ],
)
def test_a_result_is_what_a_model_can_read(result, text):
    assert rendered_result(result) == (text, False)
    assert rendered_result({**result, "isError": True}) == (text, True)


@settings(max_examples=50)
@given(
    st.recursive(st.none() | st.booleans() | ANY_TEXT, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner))
)
def test_any_content_can_be_shown(content):
    (result,) = messages_in([json.dumps({"content": content, "structuredContent": content})])
    text, _ = rendered_result(result)
    assert text
    assert text.encode()
