"""The proxy as real clients see it: openai, litellm, and a conversation of the OpenHands SDK."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders.proxy_calls import START, TOOLS, call_text, tool_result
from builders.scripted_sampler import ScriptedSampler, scripted

from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, RolloutSession, audit

REPLIES = [f"Look.\n{call_text('ls')}", call_text("cat a") + call_text("cat b"), "All done."]


@pytest.fixture
def sampler(template: ChatTemplate) -> ScriptedSampler:
    return scripted(template, REPLIES)


@pytest.fixture
async def session(template: ChatTemplate, sampler: ScriptedSampler) -> AsyncIterator[RolloutSession]:
    settings = ProxySettings(context_tokens=20_000, max_new_tokens=400)
    async with ChatProxy(template, HermesParser(), sampler, settings) as proxy:
        yield proxy.open_rollout("r")


async def converse(create: Any) -> list[dict[str, Any]]:
    """Three turns, each assistant message replayed as the client's own object serialises it."""
    messages: list[dict[str, Any]] = list(START)
    for _ in REPLIES:
        response = await create(messages)
        message = response.choices[0].message.model_dump()
        assert response.choices[0].finish_reason == ("tool_calls" if message["tool_calls"] else "stop")
        assert response.usage.total_tokens == response.usage.prompt_tokens + response.usage.completion_tokens
        messages.append(message)
        messages += [tool_result(message, "x", place) for place in range(len(message["tool_calls"] or ()))]
    return messages


async def check(session: RolloutSession, messages: list[dict[str, Any]]) -> None:
    record = await session.close()
    assert messages[-1]["content"] == "All done."
    assert len(record.turns) == 3
    assert record.branch_reasons == {}
    assert len(record.samples) == 1
    assert audit(record).clean


async def test_openai_client(session: RolloutSession) -> None:
    from openai import AsyncOpenAI, BadRequestError

    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:
        completions: Any = client.chat.completions
        messages = await converse(lambda m: completions.create(model="policy", messages=m, tools=TOOLS))
        with pytest.raises(BadRequestError, match="stream=true is not supported"):
            await completions.create(model="policy", messages=START, stream=True)
    await check(session, messages)


async def test_litellm(session: RolloutSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    where = {"model": "openai/policy", "base_url": session.base_url, "api_key": session.api_key, "max_retries": 0}
    await check(session, await converse(lambda m: litellm.acompletion(messages=m, tools=TOOLS, **where)))
    with pytest.raises(litellm.exceptions.APIError, match="this rollout is over"):
        await litellm.acompletion(messages=START, **where)
    with pytest.raises(litellm.exceptions.AuthenticationError):
        await litellm.acompletion(messages=START, **{**where, "api_key": "guess"})


async def test_litellm_reads_overflow_as_a_full_context(template: ChatTemplate, sampler: ScriptedSampler) -> None:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    settings = ProxySettings(context_tokens=10, max_new_tokens=400)
    async with ChatProxy(template, HermesParser(), sampler, settings) as proxy:
        session = proxy.open_rollout("r")
        where = {"model": "openai/policy", "base_url": session.base_url, "api_key": session.api_key}
        with pytest.raises(litellm.exceptions.ContextWindowExceededError):
            await litellm.acompletion(messages=START, **where)


async def test_openhands_conversation_stays_on_one_branch(session: RolloutSession, tmp_path: Path) -> None:
    for name, value in {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "LOG_AUTO_CONFIG": "false",
        "ALLOW_SHORT_CONTEXT_WINDOWS": "true",
    }.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("OH_PERSISTENCE_DIR", str(tmp_path / "home"))
    from openhands.sdk import LLM, Action, Agent, Conversation, Observation, Tool, register_tool
    from openhands.sdk.tool import ToolDefinition, ToolExecutor
    from pydantic import SecretStr

    class EchoAction(Action):
        command: str
        timeout: float | None = None

    class EchoObservation(Observation):
        pass

    class EchoExecutor(ToolExecutor[EchoAction, EchoObservation]):
        def __call__(self, action: EchoAction, conversation: object = None) -> EchoObservation:
            return EchoObservation.from_text(f"ran {action.command}\n")

    class TerminalTool(ToolDefinition[EchoAction, EchoObservation]):
        name = "terminal"

        @classmethod
        def create(cls, *args: object, **kwargs: object) -> Sequence["TerminalTool"]:
            executor = EchoExecutor()
            return [cls(description="Run", action_type=EchoAction, observation_type=EchoObservation, executor=executor)]

    register_tool("terminal", TerminalTool)
    replies = [
        f"Look.\n{call_text('echo é')}",
        '<tool_call>{"name":"terminal",  "arguments":{"command":"b",  "timeout":null, "command":"c"}}</tool_call>',
        '<tool_call>{"name": "terminal", "arguments": {"wrong": 1}}</tool_call>' + call_text("d"),
        '<tool_call>{"name": "nosuch", "arguments": {}}</tool_call>',
        '\n\n<tool_call>{"name": "finish", "arguments": {"message": "done"}}</tool_call>',
    ]
    session._sampler = sampler = scripted(session._template, replies)
    llm = LLM(
        model="openai/policy",
        base_url=session.base_url,
        api_key=SecretStr(session.api_key),
        num_retries=1,
        reasoning_effort=None,
        capability_overrides={"supports_reasoning_effort": False, "supports_sampling_params": True},
        force_string_serializer=True,
        caching_prompt=False,
        disable_vision=True,
        usage_id="policy",
    )
    agent = Agent(llm=llm, tools=[Tool(name="terminal")])
    conversation = Conversation(agent=agent, workspace=str(tmp_path), visualizer=None, stuck_detection=False)
    try:
        conversation.send_message("List the files.")
        await conversation.arun()
    finally:
        conversation.close()
    record = await session.close()
    assert len(sampler.calls) == len(record.turns) == len(replies)
    assert record.branch_reasons == {}
    assert [turn.branch for turn in record.turns] == [0] * len(replies)
    assert audit(record).clean
    (sample,) = record.samples
    text = session._template.decode(sample.token_ids)
    for reply in replies:
        assert f"<|im_start|>assistant\n{reply}<|im_end|>" in text, "as sampled, not as replayed"
    for observation in ("ran echo é", "ran c", "ran d", "nosuch"):
        assert observation in text
