import json
import sys
from pathlib import Path
from typing import Any

import pytest

from drydock.errors import ConfigError
from drydock.training.sft.conversations import read_conversations

USER, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def written(folder: Path, *rows: Any) -> Path:
    file = folder / "data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def read(folder: Path, *messages: Any, **columns: Any):
    [conversation] = read_conversations(written(folder, {"messages": messages, **columns}), "data.train")
    return conversation


def test_messages_tools_and_content_parts_are_read(tmp_path: Path):
    parts = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}
    found = read(tmp_path, {"role": "system", "content": "s"}, parts, ANSWER, tools=[TOOL], source="somewhere")
    assert [message.role for message in found.messages] == ["system", "user", "assistant"]
    assert found.messages[1].text == "x\ny"
    assert found.tools == [TOOL]
    assert read(tmp_path, USER, ANSWER, tools=json.dumps([TOOL])).tools == [TOOL]
    assert read(tmp_path, USER, ANSWER, tools=[]).tools is None


def test_calls_without_ids_are_joined_to_their_results_in_order(tmp_path: Path):
    calls = [{"type": "function", "function": {"name": "look", "arguments": {"place": n}}} for n in (1, 2)]
    results = [{"role": "tool", "content": str(n)} for n in (1, 2)]
    found = read(tmp_path, USER, {"role": "assistant", "content": None, "tool_calls": calls}, *results, ANSWER)
    first, second = found.messages[1].calls
    assert first.id != second.id
    assert json.loads(second.arguments) == {"place": 2}
    assert [message.tool_call_id for message in found.messages[2:4]] == [first.id, second.id]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([ANSWER], "starts with a user message"),
        ([{"role": "system", "content": "s"}, ANSWER], "starts with a user message"),
        ([USER], "an assistant's"),
        ([USER, ANSWER, ANSWER], r"messages\[2\] is an assistant's after an assistant's"),
        ([USER, {**ANSWER, "audio": {"id": "a"}}], r"messages\[1\]\.audio is not known"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, ANSWER], "only text is supported"),
        ([USER, {"role": "tool", "content": "t"}, ANSWER], "tool_call_id is missing"),
    ],
)
def test_what_cannot_be_trained_as_given_is_refused(tmp_path: Path, messages: list, problem: str):
    file = written(tmp_path, {"messages": [USER, ANSWER]}, {"messages": messages})
    with pytest.raises(ConfigError, match=problem) as caught:
        read_conversations(file, "data.train")
    assert str(caught.value).startswith(f"{file}:2: ")


def test_tools_must_be_schemas(tmp_path: Path):
    with pytest.raises(ConfigError, match="tools must be a list"):
        read(tmp_path, USER, ANSWER, tools="look")


def test_parquet_without_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"data\.train: .*rows\.parquet is a Parquet file.*drydock-rl\[parquet\]"):
        read_conversations(tmp_path / "rows.parquet", "data.train")


def test_parquet_rows_are_those_of_json_lines(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow", reason="reads Parquet")
    from pyarrow import parquet

    call = {"type": "function", "function": {"name": "look", "arguments": '{"place": 1}'}}
    rows = [
        {"messages": [USER, ANSWER], "tools": None},
        {
            "messages": [
                USER,
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **call}]},
                {"role": "tool", "content": "t", "tool_call_id": "c"},
                ANSWER,
            ],
            "tools": json.dumps([TOOL]),
        },
    ]
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    wanted = read_conversations(written(tmp_path, *rows), "data.train")
    found = read_conversations(file, "data.train")
    assert [(one.messages, one.tools) for one in found] == [(one.messages, one.tools) for one in wanted]
    assert found[1].origin == f"{file}:1"
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"cannot read .*bad\.parquet"):
        read_conversations(tmp_path / "bad.parquet", "data.train")
