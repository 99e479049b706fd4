"""The OpenHands SDK agent as a Harbor agent that runs in the driver, beside the sandbox and not in it.

So the model endpoint and its key never enter the sandbox; the agent reaches it through `environment.exec` only.

The SDK's `arun()` swallows cancellation on purpose: awaited directly, Harbor's agent timeout and an external cancel
would both be lost. It therefore runs in a task of its own behind a shield; when this coroutine is cancelled the task is
stopped first and the cancellation goes on to Harbor.

How the run ended is left in `context.metadata` (see `result.py`). Reaching the turn limit or a full context is a normal
return; a failing endpoint, sandbox or agent raises one of the classes in `failures.py`.
"""

import asyncio
import inspect
import logging
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import ValidationError

from drydock.errors import ConfigError, TaskError
from drydock.harness.agent import rollout_agent
from drydock.harness.budget import Budget
from drydock.harness.connections import connection_for
from drydock.harness.conversation import RolloutConversation, events_of
from drydock.harness.failures import AgentCrashed, PolicyCallFailed, SandboxCommandFailed
from drydock.harness.llm import policy_llm
from drydock.harness.mcp.header_values import headers_of
from drydock.harness.mcp.servers import TaskServers, task_servers
from drydock.harness.prompt import system_prompt
from drydock.harness.result import End, HarnessResult
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.sdk import (
    ActionEvent,
    AgentErrorEvent,
    ConversationExecutionStatus,
    ConversationRunError,
    LLMContextWindowExceedError,
    LLMError,
    MessageEvent,
    ObservationEvent,
)
from drydock.harness.settings import HarnessSettings
from drydock.harness.settle import settle
from drydock.harness.skill_upload import skills_of_task, upload_skills
from drydock.harness.skills import Skill, read_skills
from drydock.harness.tool_schemas import visible_name
from drydock.harness.tools import build_tools, server_tools

log = logging.getLogger(__name__)

SDK_VERSION = version("openhands-sdk")

STOP_GRACE_S = 10.0
"""How long the SDK may take to come to rest after it was told to stop."""

_HARBOR_ARGUMENTS = {
    name for name in inspect.signature(BaseAgent.__init__).parameters if name not in ("self", "kwargs")
}
_HARBOR_ARGUMENTS |= {"override_setup_timeout_sec"}


class OpenHandsAgent(BaseAgent):
    """Agent `openhands` of Drydock; keyword arguments are `rollout_id` and those of HarnessSettings."""

    capabilities = AgentCapabilities(skills=True, mcp_servers=True, mcp_http_headers=True)

    def __init__(self, *args: Any, rollout_id: str, **kwargs: Any) -> None:
        theirs = {name: value for name, value in kwargs.items() if name in _HARBOR_ARGUMENTS}
        ours = {name: value for name, value in kwargs.items() if name not in _HARBOR_ARGUMENTS}
        self.settings = _read_settings(ours)
        self.rollout_id = rollout_id
        self._skills: tuple[Skill, ...] = ()
        super().__init__(*args, **theirs)

    @classmethod
    def check_settings(cls, kwargs: dict[str, Any]) -> None:
        """Validate the agent's keyword arguments; raises UserError (ConfigError) that says which one is wrong."""
        settings = _read_settings(kwargs)
        _prompt_of(settings, read_skills(settings.skills))

    @staticmethod
    def name() -> str:
        return "drydock-openhands"

    def version(self) -> str | None:
        return SDK_VERSION

    async def setup(self, environment: BaseEnvironment) -> None:
        """Put skills into the sandbox. There is nothing to install: the agent is not in the sandbox."""
        sandbox = self._sandbox(environment)
        skills = read_skills(self.settings.skills)
        await upload_skills(skills, environment, sandbox)
        of_task = await skills_of_task(self.skills_dir, sandbox) if self.skills_dir else ()
        names = {skill.name for skill in skills}
        self._skills = (*skills, *(skill for skill in of_task if skill.name not in names))

    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        """The agent has no web tools; Harbor would log an error about that for every trial."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        result = HarnessResult(rollout_id=self.rollout_id, end=End.INTERRUPTED)
        sandbox = self._sandbox(environment)
        try:
            own = [visible_name(tool) for tool in self.settings.tools]
            headers, secrets = headers_of(self)
            async with task_servers(
                self.mcp_servers, headers, secrets, environment=environment, sandbox=sandbox, own_tools=own
            ) as servers:
                await self._converse(instruction, sandbox, servers, result)
        except TaskError as error:
            result.end, result.error = End.FAILED, f"{type(error).__name__}: {error}"
            raise
        finally:
            context.metadata = {**(context.metadata or {}), **result.to_metadata()}

    async def _converse(
        self, instruction: str, sandbox: SandboxAccess, servers: TaskServers, result: HarnessResult
    ) -> None:
        """Let the policy work; how that ended is in `result` whatever this raises."""
        budget = Budget(self.settings.max_sampled_tokens, self.settings.max_seconds)
        conversation = self._conversation(sandbox, servers, budget)
        try:
            conversation.send_message(instruction)
            await _run_to_rest(conversation)
            result.end = _end_of(conversation)
            if result.end is End.TURNS_EXHAUSTED:
                result.limit = budget.reached or "turns"
            elif result.end is End.FINAL_TEXT and budget.cut_off:
                result.end, result.limit = End.TURNS_EXHAUSTED, "turn_length"
        except ConversationRunError as error:
            cause = error.original_exception
            if isinstance(cause, LLMContextWindowExceedError):
                result.end = End.CONTEXT_FULL
            else:
                failure = _failure(cause)
                result.end, result.error = End.FAILED, f"{type(failure).__name__}: {failure}"
                raise failure from cause
        finally:
            _count(conversation, result)
            result.sampled_tokens = budget.sampled_tokens
            conversation.close()

    def _sandbox(self, environment: BaseEnvironment) -> SandboxAccess:
        settings = self.settings
        return SandboxAccess(
            environment, timeout_s=settings.command_timeout_s, max_output_chars=settings.max_output_chars
        )

    def _conversation(self, sandbox: SandboxAccess, servers: TaskServers, budget: Budget) -> RolloutConversation:
        settings = self.settings
        llm = policy_llm(
            connection_for(self.rollout_id), transport=settings.transport, call_timeout_s=settings.call_timeout_s
        )
        agent = rollout_agent(
            llm,
            _prompt_of(settings, self._skills),
            {**build_tools(settings.tools, sandbox, self.rollout_id), **server_tools(servers)},
            budget=budget,
            condense_after_events=settings.condense_after_events,
        )
        return RolloutConversation(agent, rollout_id=self.rollout_id, max_turns=settings.max_turns)


def _read_settings(kwargs: dict[str, Any]) -> HarnessSettings:
    try:
        return HarnessSettings(**kwargs)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ConfigError(f"the agent's settings are wrong: {problems}") from error


def _prompt_of(settings: HarnessSettings, skills: Sequence[Skill]) -> str:
    return system_prompt(settings.system_prompt_file, settings.tools, skills, max_turns=settings.max_turns)


async def _run_to_rest(conversation: RolloutConversation) -> None:
    """Await the SDK's run loop; when cancelled, stop it, wait until it rests, and pass the cancellation on."""
    task = asyncio.create_task(conversation.arun(), name=f"agent-{conversation.id}")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        if not await settle(task, STOP_GRACE_S):
            log.error("the agent of conversation %s did not stop within %g s", conversation.id, STOP_GRACE_S)
        raise


def _end_of(conversation: RolloutConversation) -> End:
    """Read from a conversation at rest why it stopped."""
    if conversation.state.execution_status is not ConversationExecutionStatus.FINISHED:
        return End.TURNS_EXHAUSTED
    for event in reversed(events_of(conversation)):
        if isinstance(event, MessageEvent) and event.source == "agent":
            return End.FINAL_TEXT
        if isinstance(event, ActionEvent):
            return End.FINISH_TOOL
    return End.FINAL_TEXT


def _failure(cause: BaseException) -> Exception:
    """The Drydock class for what broke the SDK's run loop."""
    if isinstance(cause, SandboxCommandFailed):
        return cause
    if type(cause).__module__.split(".")[0] in ("litellm", "openai", "httpx") or isinstance(cause, LLMError):
        return PolicyCallFailed(f"the agent's chat call failed: {cause}")
    return AgentCrashed(f"the agent failed: {type(cause).__name__}: {cause}")


def _count(conversation: RolloutConversation, result: HarnessResult) -> None:
    """Fill in the numbers of `result` from the conversation's events."""
    replies = set()
    for event in events_of(conversation):
        if isinstance(event, ActionEvent | MessageEvent) and event.source == "agent":
            replies.add(event.llm_response_id or event.id)
        elif isinstance(event, ObservationEvent):
            result.tool_calls += 1
        elif isinstance(event, AgentErrorEvent):
            result.refused_calls += 1
    result.turns = len(replies)
