"""Agents and tools in whole rollouts: what is trained is exactly what was sampled, whatever the agent is."""

import pytest
from builders.policy import tool_call
from builders.tasks import write_task

from drydock.errors import ConfigError
from drydock.proxy.audit import audit
from drydock.rollout import Outcome, run_rollout
from drydock.rollout.trial_config import load_classes

OWN = "builders.own_agent:OwnAgent"


def with_agent(settings, **kwargs):
    return settings.model_copy(update={"agent_kwargs": {**settings.agent_kwargs, **kwargs}})


async def test_all_tools_together_leave_one_branch(tmp_path, serve, settings, spec_for):
    tools = ["persistent_terminal", "file_editor", "think", "task_tracker", "builders.agent_tools:CountTool", "finish"]
    replies = [
        tool_call("think", thought="é"),
        tool_call("task_tracker", command="plan", task_list=[{"title": "write"}]),
        tool_call("file_editor", command="create", path="/app/answer.txt", file_text="hallo"),
        tool_call(
            "file_editor", command="str_replace", path="/app/answer.txt", old_str="a", new_str="e", view_range=None
        ),
        tool_call("count", path="/app/answer.txt", what="bytes"),
        tool_call("terminal", command="X=1"),
        tool_call("finish", message="done"),
    ]
    async with serve(replies) as proxy:
        settings = with_agent(settings, tools=tools)
        load_classes(settings)
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.error) == (Outcome.GRADED, 1.0, None)
    assert trajectory.record.branch_reasons == {}
    assert audit(trajectory.record).clean


async def test_a_condensed_conversation_branches_and_stays_exact(tmp_path, serve, settings, spec_for):
    replies = [tool_call("terminal", command=f"echo {n}") for n in range(6)]

    def policy(_ids: list[int], text: str) -> str:
        if "context-aware state summary" in text:
            return "the summary"
        if "the summary" in text:
            return tool_call("finish", message="done")
        return replies[text.count("<|im_start|>assistant") - 1]

    async with serve(policy, context_tokens=30_000) as proxy:
        settings = with_agent(settings, condense_after_events=12)
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 0.0)
    assert sum(trajectory.record.branch_reasons.values()) == 2
    assert audit(trajectory.record).clean


@pytest.mark.parametrize("limit", [{"max_sampled_tokens": 1}, {"max_seconds": 1.0}])
async def test_a_rollout_that_used_up_its_limits_is_not_trained(tmp_path, serve, settings, spec_for, limit):
    async with serve([tool_call("terminal", command="sleep 1.1")]) as proxy:
        task = write_task(tmp_path / "hello")
        trajectory = await run_rollout(spec_for(task), with_agent(settings, **limit), proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.TURNS_EXHAUSTED, None, 1)


async def test_an_agent_of_ones_own_is_recorded_like_any_other(tmp_path, serve, settings, spec_for):
    settings = settings.model_copy(update={"agent": OWN, "agent_kwargs": {"greeting": "Well?"}})
    load_classes(settings)
    async with serve(["echo hello > /app/answer.txt"]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.GRADED, 1.0, 1)
    assert trajectory.record.messages[0]["content"].endswith("Well?")
    assert audit(trajectory.record).clean


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("claude-code", "is installed inside the sandbox by Harbor"),
        ("harbor.agents.installed.openhands_sdk:OpenHandsSDK", "is installed inside the sandbox by Harbor"),
        ("terminus-2", "finds its model by its own settings"),
        ("nothing", "unknown agent 'nothing'; give module:Class, nop or oracle"),
        ("nothing.at:All", "cannot be imported"),
        ("builders.own_agent:NoAgent", "is no subclass of harbor.agents.base.BaseAgent"),
        ("builders.own_agent:DeafAgent", "takes no keyword argument `rollout_id`"),
    ],
)
def test_an_agent_that_cannot_be_trained_is_refused_before_anything_starts(settings, agent: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_classes(settings.model_copy(update={"agent": agent, "agent_kwargs": {}}))


@pytest.mark.parametrize("agent", ["nop", "oracle"])
def test_agents_without_a_model_are_taken(settings, agent: str):
    load_classes(settings.model_copy(update={"agent": agent, "agent_kwargs": {}}))
