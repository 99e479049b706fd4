"""What the OpenHands SDK does to a history, each in a real conversation, and what the ledger makes of it.

Each script says what the policy samples, checks that the SDK did rewrite it in the next request, and names the reason
for which each turn left the recorded history (None: it extended it). Whatever happens, every sampled token is trained
exactly once, as it was sampled.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from builders.openhands_chat import FINISH, SECRET, TRANSPORTS, Chat, Transport, call, chat, sampled_texts, say

from drydock.chat.template import ChatTemplate
from drydock.proxy import RolloutRecord, audit

Drive = Callable[[Chat, dict[str, Any], dict[str, Any]], Awaitable[None]]


async def run_once(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """One task, to the end of the conversation."""
    conversation = chat.conversation(agent, **settings)
    conversation.send_message("Do it.")
    await conversation.arun()


async def ask_again(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """The user answers when the agent is done, and it goes on."""
    await run_once(chat, agent, settings)
    chat.conversations[0].send_message("And now?")
    await chat.conversations[0].arun()


async def two_messages(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """The user says two things before the agent starts."""
    conversation = chat.conversation(agent, **settings)
    conversation.send_message("Do it.")
    conversation.send_message("But gently.")
    await conversation.arun()


async def gives_up_then_adds(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """The agent gives up waiting for its first turn; the user says more and starts it again."""
    conversation = chat.conversation(agent, **settings)
    conversation.send_message("Do it.")
    with pytest.raises(Exception, match=r"[Tt]ime"):
        await conversation.arun()
    await _sampled(chat, 1)
    conversation.send_message("Hurry.")
    await conversation.arun()


async def gives_up_then_resumes(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """The agent gives up waiting for its first turn and is started again."""
    conversation = chat.conversation(agent, **settings)
    conversation.send_message("Do it.")
    with pytest.raises(Exception, match=r"[Tt]ime"):
        await conversation.arun()
    await conversation.arun()


async def question_aside(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """Somebody asks about the work, outside of the conversation, which then goes on."""
    await run_once(chat, agent, settings)
    await asyncio.to_thread(chat.conversations[0].ask_agent, "How is it going?")
    chat.conversations[0].send_message("And now?")
    await chat.conversations[0].arun()


async def with_sub_agent(chat: Chat, agent: dict[str, Any], settings: dict[str, Any]) -> None:
    """A second agent works under the same key between two turns of the first."""
    await run_once(chat, agent, settings)
    other = chat.conversation(agent, **settings)
    other.send_message("Do a part of it.")
    await other.arun()
    chat.conversations[0].send_message("Go on.")
    await chat.conversations[0].arun()


async def _sampled(chat: Chat, count: int) -> None:
    async with asyncio.timeout(10):
        while len(chat.session.record.turns) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def condensing(max_events: int) -> Callable[[Chat], dict[str, Any]]:
    """An agent that has its history summarised under the same key when it has more than `max_events` events."""

    def agent(chat: Chat) -> dict[str, Any]:
        from openhands.sdk.context.condenser import LLMSummarizingCondenser

        return {"condenser": LLMSummarizingCondenser(llm=chat.llm("condenser"), max_size=max_events, keep_first=2)}

    return agent


def skilled(_: Chat) -> dict[str, Any]:
    from openhands.sdk import AgentContext
    from openhands.sdk.skills import KeywordTrigger, Skill

    skill = Skill(name="gentle", content="Be gentle.", trigger=KeywordTrigger(keywords=["do it"]))
    return {"agent_context": AgentContext(skills=[skill], current_datetime=None)}


def nothing_more(_: Chat) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Script:
    """replies: what is sampled. reasons: one a turn. rewritten: what the SDK did, by looking at its requests.

    over_http: the reasons there, where they are others. samples: training rows. agent, settings, llm: what differs
    from a plain agent, conversation, LLM.
    """

    replies: tuple[str, ...]
    reasons: tuple[str | None, ...]
    rewritten: Callable[[Chat], object]
    samples: int = 1
    drive: Drive = run_once
    agent: Callable[[Chat], dict[str, Any]] = nothing_more
    settings: dict[str, Any] = field(default_factory=dict)
    llm: dict[str, Any] = field(default_factory=dict)
    delays_s: tuple[float, ...] = ()
    transports: tuple[Transport, ...] = TRANSPORTS
    over_http: tuple[str | None, ...] | None = None


def extends(rewritten: Callable[[Chat], object], *replies: str, **how: Any) -> Script:
    """A script whose every turn extends the one before, ended by the finish tool."""
    said = (*replies, FINISH)
    return Script(said, (None,) * len(said), rewritten, **how)


def leaves(reason: str, rewritten: Callable[[Chat], object], *replies: str, **how: Any) -> Script:
    """A script whose second turn leaves the recorded history, ended by the finish tool."""
    said = (*replies, FINISH)
    return Script(said, (None, reason, *(None,) * (len(said) - 2)), rewritten, samples=2, **how)


def arguments_are(text: str) -> Callable[[Chat], object]:
    return lambda chat: chat.arguments(1) == text


def roles(chat: Chat, request: int) -> list[str]:
    return [message["role"] for message in chat.sent(request)]


SCRIPTS = {
    "arguments serialised anew, ASCII only": extends(
        arguments_are('{"command": "echo \\u00e9\\u4f60", "timeout": 5.0}'),
        call("terminal", '{"command":"echo é你",  "timeout": 5.0}'),
    ),
    "nulls dropped": extends(
        arguments_are('{"command": "ls"}'), call("terminal", '{"command": "ls", "timeout": null, "extra": null}')
    ),
    "duplicate keys dropped": extends(
        arguments_are('{"command": "b"}'), call("terminal", '{"command": "a", "command": "b"}')
    ),
    "raw line break in a string escaped": extends(
        arguments_are('{"command": "a\\nb"}'), call("terminal", '{"command": "a\nb"}')
    ),
    "tool renamed": extends(
        lambda chat: chat.replayed(1)["tool_calls"][0]["function"]["name"] == "terminal",
        call("bash", '{"command": "ls"}'),
    ),
    "rest of a tag cut off the tool's name": extends(
        lambda chat: chat.replayed(1)["tool_calls"][0]["function"]["name"] == "terminal",
        call("terminal </parameter", '{"command": "ls"}'),
    ),
    "grep turned into a command": leaves(
        "call_repaired",
        lambda chat: '"command"' in chat.arguments(1),
        call("grep", '{"pattern": "root", "path": "/nowhere"}'),
    ),
    "git turned into a command": leaves(
        "call_repaired", arguments_are('{"command": "git status"}'), call("git", '{"command": "status"}')
    ),
    "name of a command taken for a call": leaves("call_repaired", arguments_are('{"command": "pwd"}'), call("pwd")),
    "misspelt key corrected": leaves(
        "call_repaired",
        arguments_are('{"command": "ls", "security_risk": "LOW"}'),
        call("terminal", '{"command": "ls", "securtiy_risk": "LOW"}'),
    ),
    "invalid JSON replaced": leaves(
        "call_repaired",
        lambda chat: json.loads(chat.arguments(1))["_openhands_malformed_tool_call"] is True,
        call("terminal", '{"command": "ls'),
    ),
    "list written as a string decoded": extends(
        arguments_are('{"task_list": [{"title": "look"}]}'),
        call("plan", '{"task_list": "[{\\"title\\": \\"look\\"}]"}'),
    ),
    "unknown tool unchanged": extends(arguments_are('{"q":  1}'), call("nosuch", '{"q":  1}')),
    "call that breaks the schema unchanged": extends(arguments_are('{"wrong":1}'), call("terminal", '{"wrong":1}')),
    "blank content beside a call dropped": extends(lambda chat: "content" not in chat.replayed(1), "\n\n" + say("ls")),
    "content keeps its outer white space": extends(
        lambda chat: chat.replayed(1)["content"] == "\n Look.\n", "\n Look.\n" + say("ls")
    ),
    "reasoning dropped": extends(
        lambda chat: "reasoning_content" not in chat.replayed(1), "<think>Hm.</think>Look." + say("ls")
    ),
    "empty reply answered by a nudge": extends(
        lambda chat: chat.replayed(1)["content"] == "" and "did not include" in chat.sent(1)[-1]["content"], ""
    ),
    "reply of reasoning only answered by a nudge": extends(
        lambda chat: chat.replayed(1)["content"] == "" and "did not include" in chat.sent(1)[-1]["content"],
        "<think>Hm.</think>",
    ),
    "two calls in one message": extends(
        lambda chat: roles(chat, 1) == ["system", "user", "assistant", "tool", "tool"], say("a") + say("b")
    ),
    "two calls, the first invalid, split into two messages": extends(
        lambda chat: roles(chat, 1) == ["system", "user", "assistant", "tool", "assistant", "tool"],
        "Both." + call("terminal", '{"wrong": 1}') + say("b"),
    ),
    "two calls, the second unknown and therefore answered first": extends(
        lambda chat: [message.get("name") for message in chat.sent(1)[3:]] == ["nosuch", "terminal"],
        say("a") + call("nosuch"),
    ),
    "long output cut": extends(lambda chat: len(chat.sent(1)[-1]["content"]) == 50_000 < 22 * 5_000, say("long 5000")),
    "skill appended to the user's message": extends(
        lambda chat: "Be gentle." in chat.sent(0)[1]["content"], say("ls"), agent=skilled
    ),
    "adjacent user messages merged": extends(
        lambda chat: chat.sent(0)[1]["content"] == "Do it.\nBut gently.", say("ls"), drive=two_messages
    ),
    "content as a list of parts": extends(
        lambda chat: isinstance(chat.replayed(1)["content"], list),
        "Look." + say("ls"),
        llm={"force_string_serializer": False},
    ),
    "nudge of the stuck detector": extends(
        lambda chat: "times in a row" in chat.sent(3)[-1]["content"],
        *[call("terminal", '{"wrong": 1}')] * 3,
    ),
    "text ends the conversation, the user goes on": extends(
        lambda chat: chat.sent(1)[-1]["content"] == "And now?", "All done.", drive=ask_again
    ),
    "secret masked in what the agent said": leaves(
        "assistant_changed",
        lambda chat: SECRET not in json.dumps(chat.sent(1)),
        f"The password is {SECRET}.",
        drive=ask_again,
        settings={"secrets": {"PASSWORD": SECRET}},
    ),
    "turn lost by a timeout, asked for again": extends(
        lambda chat: chat.bodies[0]["messages"] == chat.bodies[1]["messages"] and len(chat.sampler.calls) == 2,
        say("ls"),
        drive=gives_up_then_resumes,
        llm={"timeout": 1},
        delays_s=(1.6,),
    ),
    "turn lost by a timeout, user message merged with the next": leaves(
        "new_conversation",
        lambda chat: chat.sent(1)[1]["content"] == "Do it.\nHurry.",
        say("ls"),
        drive=gives_up_then_adds,
        llm={"timeout": 1},
        delays_s=(1.3,),
    ),
    "call retried after a timeout": extends(
        lambda chat: chat.bodies[0]["messages"] == chat.bodies[1]["messages"] and len(chat.sampler.calls) == 2,
        say("ls"),
        llm={"timeout": 1, "num_retries": 3, "retry_min_wait": 0, "retry_max_wait": 0},
        delays_s=(1.6,),
        transports=("http",),
    ),
    "calls after finish": Script(
        (FINISH + say("late"), FINISH),
        (None, None),
        lambda chat: "late" in json.dumps(chat.sent(1)),
        drive=ask_again,
    ),
    "question aside": Script(
        ("All done.", "Well.", FINISH),
        (None, None, "user_changed"),
        over_http=(None, "tools_changed", None),  # asked without the risk that the SDK has every call estimate
        rewritten=lambda chat: "How is it going?" in chat.sent(1)[-1]["content"],
        samples=2,
        drive=question_aside,
    ),
    "sub-agent with its own history": Script(
        (say("a"), FINISH, say("b"), FINISH, FINISH),
        (None, None, "new_conversation", None, None),
        lambda chat: chat.sent(2)[1]["content"] == "Do a part of it.",
        samples=2,
        drive=with_sub_agent,
    ),
    "history condensed to a summary and its last turns": Script(
        (*(say(name) for name in "abcdef"), "The summary.", say("g"), FINISH),
        (*(None,) * 6, "new_conversation", "history_condensed", None),
        lambda chat: "The summary." in json.dumps(chat.sent(7)) and 3 < len(chat.sent(7)) < len(chat.sent(5)),
        samples=3,
        agent=condensing(12),
    ),
    "history condensed to a summary alone": Script(
        (*(say(name) for name in "abcd"), "The summary.", say("e"), FINISH),
        (*(None,) * 4, "new_conversation", "new_conversation", None),
        lambda chat: "The summary." in chat.sent(5)[1]["content"] and len(chat.sent(5)) == 2,
        samples=3,
        agent=condensing(8),
    ),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_openhands(name: str, transport: Transport, template: ChatTemplate) -> None:
    script = SCRIPTS[name]
    if transport not in script.transports:
        pytest.skip("this transport does not do it")
    async with chat(template, script.replies, transport, delays_s=script.delays_s, llm=script.llm) as made:
        await script.drive(made, script.agent(made), script.settings)
        record = await made.session.close()
        assert script.rewritten(made), [made.sent(place) for place in range(len(made.bodies))]
    assert sampled_texts(template, record) == list(script.replies)
    expected = script.over_http if transport == "http" and script.over_http else script.reasons
    assert tuple(turn.reason for turn in record.turns) == expected
    assert len(record.samples) == script.samples
    check_record(record, template)


def check_record(record: RolloutRecord, template: ChatTemplate) -> None:
    """Every sampled token is trained once, in the row whose tokens are those that the policy saw and said."""
    result = audit(record)
    assert result.clean
    assert result.trained_tokens == sum(len(turn.sampled_ids) for turn in record.turns)
    trained = [index for sample in record.samples for index in sample.turn_indices]
    assert sorted(trained) == list(range(len(record.turns)))
    for sample in record.samples:
        text = template.decode(sample.token_ids)
        for index in sample.turn_indices:
            turn = record.turns[index]
            assert f"<|im_start|>assistant\n{template.decode(turn.sampled_ids)}" in text
    reasons = [turn.reason for turn in record.turns if turn.reason is not None]
    assert sum(record.branch_reasons.values()) == len(reasons)
    assert {str(reason) for reason in reasons} == set(record.branch_reasons)


async def test_prompts_in_place_of_tools_are_refused_by_the_field_that_they_need(template: ChatTemplate) -> None:
    """Without native calls the SDK writes the history anew as prompts, and relies on stop texts that it sends."""
    async with chat(template, ["never"], "http", llm={"native_tool_calling": False}) as made:
        with pytest.raises(Exception, match="stop is not supported by this endpoint"):
            await run_once(made, {}, {})
        assert made.bodies[0]["stop"] == ["</function"]
        assert (await made.session.close()).turns == []
