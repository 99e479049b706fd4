"""A rollout of each model family, exported and read back as supervised data, has the tokens that were sampled."""

import json
from pathlib import Path

import pytest
from builders.chat_families import FAMILIES
from builders.proxy_calls import START, TOOLS, message_of, post, tool_result
from builders.trajectories import trajectory

from drydock.chat.reply_reader import reader_for
from drydock.errors import ConfigError
from drydock.proxy import ChatProxy, ProxySettings, RolloutRecord, SampledTurn
from drydock.rollout.sft_export import conversations_of
from drydock.training.batch import Row
from drydock.training.sft.conversations import read_conversations
from drydock.training.sft.rows import supervised_row

EXACT = ("qwen2.5", "qwen3", "qwen3.5", "llama3.1", "gemma3", "glm4.6", "deepseek3.1")
REFUSED = ("deepseek3.1-thinking", "gpt-oss")
"""Families whose template writes the last turn otherwise than it is sampled; `drydock sft` says so."""


class Turns:
    """Samples the given turns, one after the other."""

    def __init__(self, turns: list[list[int]]) -> None:
        self._turns = turns

    async def sample(self, prompt_ids: object, params: object, *, routing_key: str) -> SampledTurn:
        ids = self._turns.pop(0)
        return SampledTurn(tuple(ids), (-0.5,) * len(ids), 0, "stop", "")


async def rollout_and_row(name: str, folder: Path) -> tuple[RolloutRecord, Row]:
    """A call, its result and a closing text, with thinking where the family thinks; and the row of its export."""
    family = FAMILIES[name]
    template = family(folder / "model")
    thinking = "Hm." if family.thinks else ""
    turns = [family.sampled_ids(template, "", [("terminal", {"command": "ls"})], thinking)] if family.calls else []
    turns.append(family.sampled_ids(template, "Done.", (), thinking))
    settings = ProxySettings(context_tokens=9_000, max_new_tokens=900)
    async with ChatProxy(template, reader_for(template), Turns(turns), settings) as proxy:
        session = proxy.open_rollout("r")
        messages = list(START) if family.calls else START[1:]
        tools = TOOLS if family.calls else None
        while turns:
            message = message_of(await post(session, messages, tools=tools))
            messages += [message, *([tool_result(message, "out")] if message.get("tool_calls") else [])]
        record = await session.close()
    [exported] = conversations_of(trajectory().model_copy(update={"record": record}), "last")
    file = folder / "data.jsonl"
    file.write_text(json.dumps(exported.conversation) + "\n", encoding="utf-8")
    [conversation] = read_conversations(file, "data.train")
    return record, supervised_row(conversation.messages, conversation.tools, template, conversation.origin)


@pytest.mark.parametrize("name", EXACT)
async def test_the_row_of_an_exported_rollout_is_the_rollouts_own(name: str, tmp_path: Path) -> None:
    record, row = await rollout_and_row(name, tmp_path)
    [sample] = record.samples
    assert row.token_ids == sample.token_ids
    assert row.loss_mask == sample.loss_mask


@pytest.mark.parametrize("name", REFUSED)
async def test_a_family_that_cannot_be_taught_exactly_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be tokenized as the policy would sample it"):
        await rollout_and_row(name, tmp_path)
