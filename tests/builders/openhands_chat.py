"""Conversations of the real OpenHands SDK with a chat proxy whose policy says what a script tells it to.

The agent is the SDK's own `Agent` in the SDK's own `Conversation`, as anybody would write them; only its LLM is
Drydock's, over HTTP through litellm or straight to the proxy in this process. The policy's calls are written as
`<call name="terminal">{…}</call>` after its content, and their arguments reach the SDK as they were sampled, whatever
is wrong with them, so that the SDK shows all that it does about it.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from builders.scripted_sampler import ScriptedSampler
from pydantic import BaseModel

from drydock.chat.messages import ToolCall
from drydock.chat.parsers.base import ParsedReply, ReplyStream, ToolCallParser, Tools, plain_call_id
from drydock.chat.parsers.marked_calls import NoCallsParser
from drydock.chat.template import ChatTemplate
from drydock.harness.connections import Connection
from drydock.harness.llm import policy_llm
from drydock.harness.sdk import LLM, PERSISTENCE_DIR, Action, Agent, Observation, ToolDefinition, ToolExecutor
from drydock.harness.transport import close_shared_client
from drydock.proxy import ChatProxy, ProxySettings, RolloutRecord, RolloutSession
from drydock.proxy.dialects.chat import ChatDialect
from drydock.proxy.request import ChatRequest
from drydock.rollout.run import answer_of

CALL = re.compile(r'<call name="([^"]*)">(.*?)</call>', re.DOTALL)
THINKING = re.compile(r"<think>(.*?)</think>", re.DOTALL)
SECRET = "hunter2-and-more"
TRANSPORTS = ("direct", "http")

Transport = Literal["direct", "http"]


class RawCallParser:
    """Reads a policy's calls without looking into their arguments."""

    format = "raw"

    def parse(self, text: str, new_id: Callable[[], str], tools: Tools = None) -> ParsedReply:
        """Reasoning, content (outer white space kept) and calls."""
        thinking = THINKING.match(text)
        rest = text[thinking.end() :] if thinking else text
        calls = tuple(ToolCall(new_id(), name, arguments) for name, arguments in CALL.findall(rest))
        content = CALL.sub("", rest)
        return ParsedReply(content or None, calls, reasoning=thinking[1].strip() if thinking else None)

    def stream(self, new_id: Callable[[], str], tools: Tools = None) -> ReplyStream:
        """Not needed here: turns are sampled whole."""
        raise NotImplementedError

    def without_calls(self) -> ToolCallParser:
        return NoCallsParser()

    def call_id(self, n: int, salt: str) -> str:
        return plain_call_id(n, salt)


def call(name: str, arguments: str = "{}") -> str:
    """A call as the policy writes it."""
    return f'<call name="{name}">{arguments}</call>'


def say(command: str) -> str:
    """A call of the echoing terminal."""
    return call("terminal", json.dumps({"command": command}))


FINISH = call("finish", '{"message": "done"}')


class EchoAction(Action):
    command: str
    timeout: float | None = None


class EchoObservation(Observation):
    pass


class EchoExecutor(ToolExecutor[EchoAction, EchoObservation]):
    def __call__(self, action: EchoAction, conversation: object = None) -> EchoObservation:
        if action.command.startswith("long "):
            return EchoObservation.from_text("line of a long output\n" * int(action.command.split()[1]))
        return EchoObservation.from_text(f"ran {action.command}\n")


class EchoTool(ToolDefinition[EchoAction, EchoObservation]):
    """A terminal that says what it was asked to run."""

    name = "terminal"

    @classmethod
    def create(cls, *args: object, **kwargs: object) -> Sequence["EchoTool"]:
        executor = EchoExecutor()
        return [cls(description="Run", action_type=EchoAction, observation_type=EchoObservation, executor=executor)]


class PlannedTask(BaseModel):
    title: str


class PlanAction(Action):
    task_list: list[PlannedTask]


class PlanObservation(Observation):
    pass


class PlanExecutor(ToolExecutor[PlanAction, PlanObservation]):
    def __call__(self, action: PlanAction, conversation: object = None) -> PlanObservation:
        return PlanObservation.from_text(", ".join(task.title for task in action.task_list))


class PlanTool(ToolDefinition[PlanAction, PlanObservation]):
    """A list of tasks."""

    name = "plan"

    @classmethod
    def create(cls, *args: object, **kwargs: object) -> Sequence["PlanTool"]:
        executor = PlanExecutor()
        return [cls(description="Plan", action_type=PlanAction, observation_type=PlanObservation, executor=executor)]


@dataclass
class Chat:
    """A rollout at a proxy with an agent of the SDK.

    bodies: every request that the agent sent, in order. agents: how the next agent is made, apart from its LLM.
    """

    session: RolloutSession
    sampler: ScriptedSampler
    transport: Transport
    llm_changes: dict[str, Any]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    conversations: list[Any] = field(default_factory=list)

    def llm(self, usage: str = "policy") -> LLM:
        """The SDK's LLM in front of the session."""
        connection = Connection(self.session.base_url, self.session.api_key, answer_of(self.session))
        kind = "direct" if self.transport == "direct" else "litellm"
        llm = policy_llm(connection, transport=kind, call_timeout_s=20)
        return llm.model_copy(update={"usage_id": usage, **self.llm_changes})

    def conversation(self, agent: dict[str, Any], **settings: Any) -> Any:
        """A conversation with a new agent."""
        # not at the top: `drydock.harness.sdk` has to prepare the process before the SDK is imported
        from openhands.sdk import Conversation, Tool, register_tool

        register_tool("terminal", EchoTool)
        register_tool("plan", PlanTool)
        made = Agent(
            llm=self.llm(),
            system_prompt="You are an agent.",
            tools=[Tool(name="terminal"), Tool(name="plan")],
            **agent,
        )
        conversation = Conversation(agent=made, workspace=str(PERSISTENCE_DIR / "work"), visualizer=None, **settings)
        self.conversations.append(conversation)
        return conversation

    def sent(self, request: int) -> list[dict[str, Any]]:
        """The messages of a request."""
        return self.bodies[request]["messages"]

    def replayed(self, request: int, turn: int = 0) -> dict[str, Any]:
        """The n-th assistant message of a request."""
        return [message for message in self.sent(request) if message["role"] == "assistant"][turn]

    def arguments(self, request: int, turn: int = 0) -> str:
        """The arguments of the first call of the n-th assistant message of a request."""
        return self.replayed(request, turn)["tool_calls"][0]["function"]["arguments"]


@asynccontextmanager
async def chat(
    template: ChatTemplate,
    replies: Sequence[str],
    transport: Transport,
    *,
    delays_s: Sequence[float] = (),
    llm: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Chat]:
    """A proxy whose policy says `replies` one after the other, the n-th after `delays_s[n]` seconds."""
    sampler = ScriptedSampler(template, lambda _ids, _text: replies[len(sampler.calls) - 1])
    delayed = DelayedSampler(sampler, delays_s)
    chosen = ProxySettings.model_validate({"context_tokens": 200_000, "max_new_tokens": 2_000, **settings})
    async with ChatProxy(template, RawCallParser(), delayed, chosen) as proxy:
        session = proxy.open_rollout("r")
        made = Chat(session, sampler, transport, llm or {})
        try:
            with _listening(made.bodies):
                yield made
        finally:
            for conversation in made.conversations:
                conversation.close()
            await close_shared_client()
            await session.close()


class DelayedSampler:
    """Lets a script wait before some of its turns."""

    def __init__(self, sampler: ScriptedSampler, delays_s: Sequence[float]) -> None:
        self._sampler = sampler
        self._delays_s = delays_s

    async def sample(self, *args: Any, **kwargs: Any) -> Any:
        """One scripted turn."""
        turn = await self._sampler.sample(*args, **kwargs)
        count = len(self._sampler.calls)
        if count <= len(self._delays_s):
            await asyncio.sleep(self._delays_s[count - 1])
        return turn


@contextmanager
def _listening(bodies: list[dict[str, Any]]) -> Iterator[None]:
    """Keep the bodies that the chat dialect reads, over HTTP or not; it reads them as ever."""
    parse: Callable[..., ChatRequest] = ChatDialect.parse

    def heard(self: ChatDialect, body: bytes, *args: Any, **kwargs: Any) -> ChatRequest:
        bodies.append(json.loads(body))
        return parse(self, body, *args, **kwargs)

    ChatDialect.parse = heard
    try:
        yield
    finally:
        ChatDialect.parse = parse


def sampled_texts(template: ChatTemplate, record: RolloutRecord) -> list[str]:
    """What the policy said, turn by turn, stop token left out."""
    return [template.turn_text(turn.sampled_ids) for turn in record.turns]
