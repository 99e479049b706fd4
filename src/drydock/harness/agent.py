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

from drydock.harness.sdk import (
    LLM,
    ActionEvent,
    Agent,
    ConversationState,
    Event,
    LLMConvertibleEvent,
    LLMResponseType,
    LocalConversation,
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

    async def astep(
        self, conversation: LocalConversation, on_event: Callable[[Event], None], on_token: Any = None
    ) -> None:
        state = conversation.state
        messages = LLMConvertibleEvent.events_to_messages(state.view.events)
        async with conversation._released_state_lock_during_io():
            response = await self.llm.agenerate(
                messages=messages,
                tools=list(self.tools_map.values()),
                add_security_risk_prediction=True,
                call_context=conversation.get_llm_call_context(),
            )
        message = response.message
        match kind := classify_response(message):
            case LLMResponseType.TOOL_CALLS:
                await self._ahandle_tool_calls(message, response, conversation, state, on_event)
            case LLMResponseType.CONTENT:
                self._handle_content_response(message, response, conversation, state, on_event)
            case _:
                self._handle_no_content_response(message, response, conversation, state, on_event, response_type=kind)

    def get_all_llms(self) -> Generator[LLM]:
        """None: the SDK would gather their prices and latencies."""
        yield from ()

    def get_dynamic_context(self, state: ConversationState) -> str | None:
        """Nothing that differs between rollouts belongs into the prompt."""
        return None


def rollout_agent(llm: LLM, system_prompt: str, tools: dict[str, DriverTool[Any, Any]]) -> RolloutAgent:
    """Make the agent of one rollout."""
    agent = _template(system_prompt).model_copy(update={"llm": llm})
    agent._tools = dict(tools)
    agent._initialized = True
    return agent


@lru_cache(maxsize=8)
def _template(system_prompt: str) -> RolloutAgent:
    agent = RolloutAgent(
        llm=LLM(model="openai/unset"), system_prompt=system_prompt, tools=[], include_default_tools=[], condenser=None
    )
    agent._parallel_executor = LoopToolExecutor()
    return agent
