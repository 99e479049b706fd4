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
        with pytest.raises(BadRequestError, match="n must be 1"):
            await completions.create(model="policy", messages=START, n=2)
    await check(session, messages)


async def test_openai_client_streaming(session: RolloutSession) -> None:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:

        async def create(messages: Any) -> Any:
            options: Any = {"include_usage": True}
            kwargs: Any = {"model": "policy", "messages": messages, "tools": TOOLS, "stream_options": options}
            async with client.chat.completions.stream(**kwargs, temperature=0.3) as stream:
                assert stream._response.headers["x-drydock-overridden"] == "temperature"
                async for _ in stream:
                    pass
                return await stream.get_final_completion()

        messages = await converse(create)
    await check(session, messages)
    assert session.record.overridden == {"temperature": 3}


async def test_openai_responses(session: RolloutSession) -> None:
    from openai import AsyncOpenAI

    function = TOOLS[0]["function"]
    kwargs: Any = {"model": "policy", "tools": [{"type": "function", **function}], "instructions": START[0]["content"]}
    items: list[Any] = [{"role": "user", "content": START[1]["content"]}]
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:
        for turn in range(len(REPLIES)):
            if turn % 2:
                response: Any = await client.responses.create(input=items, **kwargs, store=False)
            else:
                async with client.responses.stream(input=items, **kwargs, store=False) as stream:
                    async for _ in stream:
                        pass
                    response = await stream.get_final_response()
            assert response.status == "completed"
            items += [item.model_dump(exclude_none=True) for item in response.output]
            calls = [item.call_id for item in response.output if item.type == "function_call"]
            items += [{"type": "function_call_output", "call_id": call, "output": "x"} for call in calls]
    await check(session, [{"content": response.output_text}])


async def test_anthropic_client(session: RolloutSession) -> None:
    from anthropic import AsyncAnthropic

    function = TOOLS[0]["function"]
    tool = {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}
    kwargs: Any = {"model": "policy", "max_tokens": 400, "system": START[0]["content"], "tools": [tool]}
    messages: list[Any] = [{"role": "user", "content": START[1]["content"]}]
    root_url = session.base_url.removesuffix("/v1")
    async with AsyncAnthropic(base_url=root_url, api_key=session.api_key, max_retries=0) as client:
        counted = await client.messages.count_tokens(
            messages=messages, **{name: value for name, value in kwargs.items() if name != "max_tokens"}
        )
        for turn in range(len(REPLIES)):
            if turn % 2:
                message: Any = await client.messages.create(messages=messages, **kwargs)
            else:
                async with client.messages.stream(messages=messages, **kwargs) as stream:
                    message = await stream.get_final_message()
            if not turn:
                assert message.usage.input_tokens == counted.input_tokens
            calls = [block.id for block in message.content if block.type == "tool_use"]
            assert message.stop_reason == ("tool_use" if calls else "end_turn")
            messages.append({"role": "assistant", "content": message.content})
            results = [{"type": "tool_result", "tool_use_id": call, "content": "x"} for call in calls]
            messages += [{"role": "user", "content": results}] if results else []
        assert [model.id async for model in client.models.list()] == ["policy"]
    await check(session, [{"content": message.content[0].text}])


async def test_anthropic_client_in_claude_codes_way_of_authorising(session: RolloutSession) -> None:
    from anthropic import AsyncAnthropic, AuthenticationError, BadRequestError, PermissionDeniedError

    kwargs: Any = {"model": "policy", "max_tokens": 400, "messages": [{"role": "user", "content": "Hi."}]}
    root_url = session.base_url.removesuffix("/v1")
    async with AsyncAnthropic(base_url=root_url, auth_token=session.api_key, api_key=None, max_retries=2) as client:
        assert (
            await client.beta.messages.create(**kwargs, betas=["context-management-2025-06-27"])
        ).role == "assistant"
        with pytest.raises(BadRequestError, match="stop_sequences is not supported"):
            await client.messages.create(**kwargs, stop_sequences=["x"])
        await session.close()
        with pytest.raises(PermissionDeniedError, match="this rollout is over"):
            await client.messages.create(**kwargs)
        with pytest.raises(AuthenticationError):
            await client.with_options(auth_token="guess").messages.create(**kwargs)


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


async def test_openhands_conversation_stays_on_one_branch(template: ChatTemplate, tmp_path: Path) -> None:
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
    sampler = scripted(template, replies)
    settings = ProxySettings(context_tokens=20_000, max_new_tokens=400)
    async with ChatProxy(template, HermesParser(), sampler, settings) as proxy:
        session = proxy.open_rollout("r")
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
    text = template.decode(sample.token_ids)
    for reply in replies:
        assert f"<|im_start|>assistant\n{reply}<|im_end|>" in text, "as sampled, not as replayed"
    for observation in ("ran echo é", "ran c", "ran d", "nosuch"):
        assert observation in text
