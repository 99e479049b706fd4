"""Demonstrations become exactly the tokens that the same conversation would have as a rollout."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders.conversations import replies_of
from builders.scripted_sampler import scripted
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError
from drydock.harness.tool_schemas import tool_schemas
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.recipes.shell_tasks.prepare import DemoData, prepare
from drydock.training.demonstrations import read_demonstrations, supervised_rows

SYSTEM = "You solve shell tasks."


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = DemoData(train_tasks=1, held_out_tasks=1, clean_demonstrations=12, sloppy_demonstrations=12)
    return prepare(tmp_path_factory.mktemp("demo") / "data", sizes)


async def played_through_the_proxy(
    conversation: list[dict[str, Any]], template: ChatTemplate, tools: list[dict[str, Any]]
) -> tuple[list[int], list[int]]:
    """Token ids and loss mask of the rollout in which a policy says what the demonstrated assistant says."""
    limits = ProxySettings(context_tokens=8000, max_new_tokens=500)
    async with (
        ChatProxy(template, HermesParser(), scripted(template, replies_of(conversation)), limits) as proxy,
        httpx.AsyncClient(timeout=10) as http,
    ):
        session = proxy.open_rollout("r")
        history: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
        call_ids: list[str] = []
        for message in conversation:
            if message["role"] == "assistant":
                answer = await http.post(
                    f"{session.base_url}/chat/completions",
                    json={"model": "m", "messages": history, "tools": tools},
                    headers={"Authorization": f"Bearer {session.api_key}"},
                )
                assert answer.status_code == 200, answer.text
                reply = answer.json()["choices"][0]["message"]
                call_ids = [call["id"] for call in reply.get("tool_calls") or ()]
                assert len(call_ids) == len(message.get("tool_calls") or ())
                history.append(reply)
            elif message["role"] == "tool":
                history.append({**message, "tool_call_id": call_ids.pop(0)})
            else:
                history.append(message)
        record = await session.close()
    [sample] = record.samples
    return sample.token_ids, sample.loss_mask


@pytest.mark.parametrize("name", ["clean", "sloppy"])
async def test_a_demonstration_has_the_tokens_of_the_same_rollout(demo_data: Path, name: str) -> None:
    template = ChatTemplate.load(demo_data / "model")
    tools = tool_schemas(["terminal", "finish"])
    file = demo_data / "demonstrations" / f"{name}.jsonl"
    rows = list(supervised_rows(read_demonstrations(file), template, SYSTEM, tools))
    conversations = [json.loads(line)["messages"] for line in file.read_text().splitlines()]
    assert len(rows) == len(conversations) == 12
    for row, conversation in zip(rows, conversations, strict=True):
        ids, mask = await played_through_the_proxy(conversation, template, tools)
        assert list(row.token_ids) == ids
        assert list(row.loss_mask) == mask


async def test_other_templates_and_several_calls_in_a_turn_agree_too(tmp_path: Path) -> None:
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path / "model"))
    tools = tool_schemas(["terminal", "task_tracker", "finish"])

    def call(identity: str, name: str, **arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"id": identity, "type": "function", "function": function}

    conversation = [
        {"role": "user", "content": "Look around, é."},
        {"role": "assistant", "content": None, "tool_calls": [call("x", "terminal", command='ls "a b"')]},
        {"role": "tool", "tool_call_id": "x", "content": "one\ntwo\n[exit code 0]"},
        {"role": "assistant", "content": "Now I know."},
        {"role": "user", "content": "Then end."},
        {"role": "assistant", "content": None, "tool_calls": [call("y", "finish", message="done")]},
    ]
    file = tmp_path / "one.jsonl"
    file.write_text("\n" + json.dumps({"messages": conversation}) + "\n\n")
    [row] = supervised_rows(read_demonstrations(file), template, SYSTEM, tools)
    ids, mask = await played_through_the_proxy(conversation, template, tools)
    assert list(row.token_ids) == ids
    assert list(row.loss_mask) == mask
    trained = template.decode([token for token, own in zip(ids, mask, strict=True) if own])
    assert trained.count(template.turn_end) == 3


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "messages"),
        ('{"turns": []}', "messages"),
        ('{"messages": "hello"}', "messages"),
        ('{"messages": ["hello"]}', "must be an object"),
        ('{"messages": []}', "starts with a user message"),
        ('{"messages": [{"role": "assistant", "content": "hi"}]}', "starts with a user message"),
        ('{"messages": [{"role": "user", "content": "hi"}]}', "holds an assistant"),
        ('{"messages": [{"role": "user", "content": "a"}, {"role": "narrator", "content": "b"}]}', "narrator"),
        ('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": 1}]}', "tool_calls"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "demo.jsonl"
    good = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    file.write_text(f"{good}\n\n{line}\n")
    with pytest.raises(ConfigError, match=problem) as caught:
        read_demonstrations(file)
    assert f"{file}:3: " in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"\n\n", b"\xff\xfe"])
def test_a_file_without_conversations_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "demo.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"warm_start\.conversations.*demo\.jsonl"):
        read_demonstrations(file)
