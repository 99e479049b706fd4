"""OpenAI-compatible serving of a running job, with the official client and with litellm."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from builders.service_api import Api

from drydock.chat import ChatTemplate, HermesParser, ReplyReader
from drydock.chat.messages import parse_message
from drydock.chat.reasoning import MARKS
from drydock.service.embedded import EmbeddedService
from drydock.service.serving.answers import chat_choice
from drydock.service.serving.growing_choice import GrowingChoice

pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGES: list[Any] = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": [{"type": "text", "text": "Which file defines main?"}]},
]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "shell",
            "description": "Run a command.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(service: EmbeddedService, job: str) -> AsyncIterator[openai.AsyncOpenAI]:
    key = service.token.get_secret_value()
    async with openai.AsyncOpenAI(base_url=f"{service.base_url}/v1", api_key=key, max_retries=0) as made:
        yield made


async def test_models_are_listed_under_their_names(client: openai.AsyncOpenAI, job: str, model: str):
    listed = {entry.id async for entry in await client.models.list()}
    assert {job, model.rpartition("/")[2]} <= listed
    assert not any("/" in name for name in listed), "no path of the machine is told"


async def test_a_chat_completion_is_the_sampled_continuation_of_the_rendered_prompt(
    client: openai.AsyncOpenAI, api: Api, job: str, model: str
):
    answer = await client.chat.completions.create(
        model=job, messages=MESSAGES, max_completion_tokens=12, seed=3, n=2, logprobs=True, top_logprobs=2
    )
    template = ChatTemplate.load(model)
    rendered = [parse_message(message, place).template_form() for place, message in enumerate(MESSAGES)]
    prompt = list(template.first_prompt(rendered, None))
    params = {"max_tokens": 12, "seed": 3, "n": 2, "logprobs": 0, "stop_token_ids": list(template.stop_ids)}
    result = await api.result(f"/{job}/generate", json={"prompts": [prompt], "sampling_params": params})
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice, sample in zip(answer.choices, result["results"][0]["samples"], strict=True):
        assert choice.message.content == template.turn_text(sample["token_ids"])
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        for entry, spelt, token in zip(choice.logprobs.content, sample["logprobs"], sample["token_ids"], strict=True):
            assert entry.logprob == pytest.approx(spelt[str(token)]["logprob"], abs=1e-4)
            assert len(entry.top_logprobs) == 2
            assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == sum(len(s["token_ids"]) for s in result["results"][0]["samples"])
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
async def test_a_stream_adds_up_to_the_answer(client: openai.AsyncOpenAI, job: str, tools: Any):
    fields: dict[str, Any] = {"model": job, "messages": MESSAGES, "max_tokens": 20, "seed": 5, "n": 2}
    if tools:
        fields["tools"] = tools
    whole = await client.chat.completions.create(**fields)
    stream = await client.chat.completions.create(
        **fields, stream=True, stream_options={"include_usage": True}, logprobs=True
    )
    text, logprobs, endings, usages = ["", ""], [0, 0], ["", ""], []
    async for chunk in stream:
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            text[choice.index] += choice.delta.content or ""
            endings[choice.index] = choice.finish_reason or endings[choice.index]
            if choice.logprobs and choice.logprobs.content:
                logprobs[choice.index] += len(choice.logprobs.content)
    assert text == [choice.message.content for choice in whole.choices]
    assert endings == [choice.finish_reason for choice in whole.choices]
    assert whole.usage is not None
    assert [used.completion_tokens for used in usages] == [whole.usage.completion_tokens] == [sum(logprobs)]


async def test_completions_of_texts_and_ids_streamed_or_not(client: openai.AsyncOpenAI, job: str):
    fields: dict[str, Any] = {"model": job, "max_tokens": 10, "seed": 1, "temperature": 0.9}
    one = await client.completions.create(prompt="The file is", **fields)
    both = await client.completions.create(prompt=["The file is", "Or not"], n=2, logprobs=1, **fields)
    ids = await client.completions.create(prompt=[5, 6, 7, 8], **fields)
    assert both.choices[0].text == one.choices[0].text
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 4
    logprobs = both.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.text_offset is not None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    texts = [""] * 4
    async for chunk in await client.completions.create(prompt=["The file is", "Or not"], n=2, stream=True, **fields):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in both.choices]


async def test_stop_strings_end_an_answer(client: openai.AsyncOpenAI, job: str):
    fields: dict[str, Any] = {"model": job, "prompt": "Once", "max_tokens": 40, "seed": 2}
    free = (await client.completions.create(**fields)).choices[0].text
    stop = free[7:10]
    stopped = (await client.completions.create(**fields, stop=[stop])).choices[0]
    assert (stopped.text, stopped.finish_reason) == (free[: free.index(stop)], "stop")
    streamed = ""
    async for chunk in await client.completions.create(**fields, stop=[stop], stream=True):
        streamed += "".join(choice.text for choice in chunk.choices)
    assert streamed == stopped.text


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "model 'nobody' is not served"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, openai.BadRequestError, "image_url"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"tool_choice": "required", "tools": TOOLS}, openai.BadRequestError, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "response_format"),
        ({"top_logprobs": 30, "logprobs": True}, openai.BadRequestError, "top_logprobs"),
        ({"extra_body": {"grammar": "x"}}, openai.BadRequestError, "grammar is not supported"),
        ({"presence_penalty": 7}, openai.BadRequestError, "presence_penalty"),
        ({"messages": [{"role": "user", "content": "long " * 3000}]}, openai.BadRequestError, "maximum context length"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    client: openai.AsyncOpenAI, job: str, fields: dict[str, Any], error: type[openai.APIStatusError], message: str
):
    with pytest.raises(error, match=message) as raised:
        await client.chat.completions.create(**{"model": job, "messages": MESSAGES, "max_tokens": 4, **fields})
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["message"]


async def test_an_unknown_adapter_is_refused_in_a_stream_too(client: openai.AsyncOpenAI, job: str):
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="adapter 'other' is not loaded"):
            await client.chat.completions.create(model=f"{job}:other", messages=MESSAGES, stream=stream)
    answer = await client.chat.completions.create(model=f"{job}:base", messages=MESSAGES, max_tokens=3)
    assert answer.usage is not None


async def test_a_token_of_the_service_is_needed(service: EmbeddedService, job: str):
    async with openai.AsyncOpenAI(base_url=f"{service.base_url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


async def test_a_caller_that_hangs_up_ends_the_sampling(client: openai.AsyncOpenAI, api: Api, job: str):
    stream = await client.completions.create(
        model=job, prompt="Once", max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        figures = (await api.http.get("/metrics")).text
        assert 'drydock_open_requests{kind="generate"} 1.0' in figures
        break
    await stream.close()
    for _ in range(100):
        figures = (await api.http.get("/metrics")).text.splitlines()
        if not any(line.startswith('drydock_open_requests{kind="generate"}') for line in figures):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the request goes on")


async def test_litellm_reads_answers_and_streams(service: EmbeddedService, job: str):
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    fields: dict[str, Any] = {
        "model": f"openai/{job}",
        "messages": MESSAGES,
        "api_base": f"{service.base_url}/v1",
        "api_key": service.token.get_secret_value(),
        "max_tokens": 8,
        "seed": 4,
        "tools": TOOLS,
    }
    whole: Any = await litellm.acompletion(**fields)
    text = ""
    stream: Any = await litellm.acompletion(**fields, stream=True)
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content
    assert whole.usage.completion_tokens == 8


CALL = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (f"I look.\n{CALL}", "I look.", 1),
        (f"{CALL}\n{CALL}", "", 2),
        (f"a < b <tool {CALL} after", "a < b <tool\nafter", 1),
        ("only <tool_call> broken", "only <tool_call> broken", 0),
        ("plain text \n", "plain text \n", 0),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_calls_are_told_whole_and_content_as_it_comes(text: str, content: str, calls: int, size: int):
    choice = GrowingChoice(HermesParser().stream(lambda: "call"))
    forms: list[dict[str, Any]] = []
    for place in range(0, len(text), size):
        forms += choice.wire_forms(choice.take({"text": text[place : place + size], "token_ids": [1]}))
    deltas, reply = choice.finish({"text": text, "token_ids": []})
    forms += choice.wire_forms(deltas)
    assert "".join(form.get("content", "") for form in forms) == content
    assert [call["index"] for form in forms for call in form.get("tool_calls", ())] == list(range(calls))
    assert len(reply.calls) == calls
    assert all(json.loads(call.arguments) == {"command": "ls"} for call in reply.calls)


async def test_thinking_is_streamed_apart_from_the_content():
    choice = GrowingChoice(ReplyReader(HermesParser(), MARKS[0]).stream(lambda: "call"))
    text = f"<think>\nI look.\n</think>\n\nNow.{CALL}"
    forms: list[dict[str, Any]] = []
    for letter in text:
        forms += choice.wire_forms(choice.take({"text": letter, "token_ids": [1]}))
    deltas, reply = choice.finish({"text": text, "token_ids": []})
    forms += choice.wire_forms(deltas)
    assert "".join(form.get("reasoning_content", "") for form in forms) == reply.reasoning == "I look."
    assert "".join(form.get("content", "") for form in forms) == reply.content == "Now."
    told = chat_choice(0, {"text": text, "finish_reason": "stop"}, reply, None)
    assert told["message"]["reasoning_content"] == "I look."
    assert told["finish_reason"] == "tool_calls"
