"""The SDK's agent, fitted for many short conversations in one process.

`RolloutAgent` is the SDK's `Agent`: its events, its prompt assembly, its rules about tool calls, errors and finishing.
Replaced are three things around them. Tools are handed over ready-made instead of being looked up in a process-wide
registry by a thread pool. A batch of tool calls is awaited on the event loop instead of in worker threads, so that
cancelling the rollout cancels the command it waits for. And a step is only what applies here (view, model, dispatch):
the SDK's step also dumps the whole history as indented JSON for a debug message and walks it for pending
confirmations, on every turn.
"""

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any

from pydantic import PrivateAttr

from drydock.harness.budget import Budget
from drydock.harness.message_history import MessageHistory
from drydock.harness.sdk import (
    LLM,
    ActionEvent,
    Agent,
    Condensation,
    ConversationExecutionStatus,
    ConversationState,
    Event,
    LLMResponseType,
    LLMSummarizingCondenser,
    LocalConversation,
    Message,
    ObservationEvent,
    ParallelToolExecutor,
    ToolDefinition,
    classify_response,
)
from drydock.harness.tools import DriverTool
from drydock.harness.tools.base import DriverExecutor


class LoopToolExecutor(ParallelToolExecutor):
    """Runs tool calls one after the other on the event loop.

    A tool's exception is not turned into an observation: Drydock's tools raise only when the sandbox is at fault.
    """

    async def aexecute_batch(
        self,
        action_events: Sequence[ActionEvent],
        tool_runner: Callable[[ActionEvent], list[Event]],
        tools: dict[str, ToolDefinition] | None = None,
        cancel_token: Any = None,
        span_owner: object | None = None,
    ) -> list[list[Event]]:
        return [[await _observe(event, (tools or {})[event.tool_name])] for event in action_events]


async def _observe(event: ActionEvent, tool: ToolDefinition[Any, Any]) -> ObservationEvent:
    executor = tool.executor
    if not isinstance(executor, DriverExecutor):
        raise TypeError(f"tool {tool.name!r} cannot run on the event loop")
    return ObservationEvent(
        observation=await executor.run(event.action),
        action_id=event.id,
        tool_name=tool.name,
        tool_call_id=event.tool_call.id,
    )


class RolloutAgent(Agent):
    """An agent whose tools are already bound to a sandbox."""

    _budget: Budget = PrivateAttr(default_factory=Budget)
    _history: MessageHistory = PrivateAttr(default_factory=MessageHistory)

    async def astep(
        self, conversation: LocalConversation, on_event: Callable[[Event], None], on_token: Any = None
    ) -> None:
        state = conversation.state
        if self._budget.exhausted():
            state.execution_status = ConversationExecutionStatus.PAUSED
            return
        messages = await self._messages(state, on_event)
        async with conversation._released_state_lock_during_io():
            response = await self.llm.agenerate(
                messages=messages,
                tools=list(self.tools_map.values()),
                add_security_risk_prediction=True,
                call_context=conversation.get_llm_call_context(),
            )
        self._budget.count(response.raw_response)
        message = response.message
        match kind := classify_response(message):
            case LLMResponseType.TOOL_CALLS:
                await self._ahandle_tool_calls(message, response, conversation, state, on_event)
            case LLMResponseType.CONTENT:
                self._handle_content_response(message, response, conversation, state, on_event)
            case _:
                self._handle_no_content_response(message, response, conversation, state, on_event, response_type=kind)

    async def _messages(self, state: ConversationState, on_event: Callable[[Event], None]) -> list[Message]:
        """The history to send. Where a condenser is set and due, the policy first sums the older part up."""
        if self.condenser is not None:
            condensed = await self.condenser.acondense(state.view, agent_llm=self.llm)
            if isinstance(condensed, Condensation):
                on_event(condensed)
        return self._history.of(state.view.events)

    def get_all_llms(self) -> Generator[LLM]:
        """None: the SDK would gather their prices and latencies."""
        yield from ()

    def get_dynamic_context(self, state: ConversationState) -> str | None:
        """Nothing that differs between rollouts belongs into the prompt."""
        return None


def rollout_agent(
    llm: LLM,
    system_prompt: str,
    tools: dict[str, DriverTool[Any, Any]],
    *,
    budget: Budget | None = None,
    condense_after_events: int | None = None,
) -> RolloutAgent:
    """Make the agent of one rollout."""
    agent = _template(system_prompt).model_copy(
        update={"llm": llm, "condenser": _condenser(llm, condense_after_events)}
    )
    agent._tools = dict(tools)
    agent._budget = budget or Budget()
    agent._history = MessageHistory()
    agent._initialized = True
    return agent


def _condenser(llm: LLM, after_events: int | None) -> LLMSummarizingCondenser | None:
    """The SDK's condenser, which keeps the first two events (system prompt and task) and the newer half."""
    return None if after_events is None else LLMSummarizingCondenser(llm=llm, max_size=after_events, keep_first=2)


@lru_cache(maxsize=8)
def _template(system_prompt: str) -> RolloutAgent:
    agent = RolloutAgent(
        llm=LLM(model="openai/unset"), system_prompt=system_prompt, tools=[], include_default_tools=[], condenser=None
    )
    agent._parallel_executor = LoopToolExecutor()
    return agent
