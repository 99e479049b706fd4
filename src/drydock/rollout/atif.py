"""A rollout as a document of the Agent Trajectory Interchange Format, built and thereby checked by Harbor's own models.

The document is the first history of the rollout; every other one (after an edit or a condensation, of a sub-agent) is
embedded in `subagent_trajectories`, with the reason for which it left. A step whose tokens are another history's to
train, or that was never sampled, has `is_copied_context`, so what is not marked is exactly what has loss mask 1.
Sampled ids and log-probs are in each agent step's metrics.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from harbor.models import trajectories as atif

from drydock.errors import UserError
from drydock.proxy.record import TurnRecord
from drydock.rollout.history import Branch, branches, messages_of
from drydock.rollout.trajectory import Trajectory

NOTES = (
    "Token ids and log-probs are the sampler's. Steps with is_copied_context are not trained here: another embedded "
    "trajectory trains them, or they were not sampled. Messages are as the policy's replies were read."
)


def atif_document(trajectory: Trajectory, *, prompt_ids: bool = False) -> atif.Trajectory:
    """The rollout's document; `prompt_ids` adds to each sampled step all tokens of its prompt (long).

    Raises UserError for a rollout without turns, of which the format knows nothing, or without messages.
    """
    found = branches(trajectory.record)
    if not found:
        raise UserError(f"rollout {trajectory.rollout_id} has no sampled turn; there is nothing to export")
    for branch in found:
        messages_of(branch.turns)
    first = next(branch for branch in found if branch.turns[0].index == 0)
    others = [branch for branch in found if branch is not first]
    document = _document(trajectory, first, prompt_ids)
    document.notes = NOTES
    document.extra = {
        **trajectory.model_dump(mode="json", exclude={"record", "rollout_id"}),
        "branch_reasons": trajectory.record.branch_reasons,
    }
    if others:
        document.subagent_trajectories = [_document(trajectory, branch, prompt_ids) for branch in others]
    return atif.Trajectory.model_validate(document.model_dump())


def _document(trajectory: Trajectory, branch: Branch, prompt_ids: bool) -> atif.Trajectory:
    steps = _steps(branch, prompt_ids)
    sampled = [step.metrics for step in steps if step.metrics is not None]
    left = [{"turn": turn.index, "reason": turn.reason} for turn in branch.turns if turn.reason is not None]
    tools = branch.turns[0].tools
    return atif.Trajectory(
        session_id=trajectory.rollout_id,
        trajectory_id=f"{trajectory.rollout_id}/{branch.turns[-1].index}",
        agent=atif.Agent(
            name="drydock",
            version=version("drydock-rl"),
            tool_definitions=None if tools is None else trajectory.record.tool_sets[tools],
        ),
        steps=steps,
        final_metrics=atif.FinalMetrics(
            total_prompt_tokens=sum(metrics.prompt_tokens or 0 for metrics in sampled),
            total_completion_tokens=sum(metrics.completion_tokens or 0 for metrics in sampled),
            total_steps=len(steps),
        ),
        extra={"branch": branch.number, "branched": left} if left else {"branch": branch.number},
    )


def _steps(branch: Branch, prompt_ids: bool) -> list[atif.Step]:
    steps: list[atif.Step] = []
    for place, turn in enumerate(branch.turns):
        for message in turn.given:
            if message["role"] != "tool" or not _attach(message, steps):
                steps.append(_given_step(message, len(steps) + 1))
        ids = branch.prompt_ids(place) if prompt_ids else None
        steps.append(_sampled_step(turn, len(steps) + 1, ids, copied=not branch.trains(turn)))
    return steps


def _attach(message: dict[str, Any], steps: Sequence[atif.Step]) -> bool:
    """Put a tool's result to the step that made the call, if there is one."""
    identity = message.get("tool_call_id")
    for step in reversed(steps):
        if identity in {call.tool_call_id for call in step.tool_calls or ()}:
            result = atif.ObservationResult(source_call_id=identity, content=message.get("content"))
            step.observation = step.observation or atif.Observation(results=[])
            step.observation.results.append(result)
            return True
    return False


def _given_step(message: dict[str, Any], step_id: int) -> atif.Step:
    """A message that the harness wrote; a tool's result whose call is not in this history has no call id."""
    text = message.get("content") or ""
    match message["role"]:
        case "assistant":
            return atif.Step(
                step_id=step_id,
                source="agent",
                message=text,
                reasoning_content=message.get("reasoning_content"),
                tool_calls=_tool_calls(message),
                is_copied_context=True,
            )
        case "tool":
            observation = atif.Observation(results=[atif.ObservationResult(content=text)])
            return atif.Step(step_id=step_id, source="system", message="", observation=observation)
        case role:
            return atif.Step(step_id=step_id, source="user" if role == "user" else "system", message=text)


def _sampled_step(turn: TurnRecord, step_id: int, prompt_ids: list[int] | None, *, copied: bool) -> atif.Step:
    return atif.Step(
        step_id=step_id,
        timestamp=datetime.fromtimestamp(turn.started_at, UTC).isoformat(),
        source="agent",
        message=turn.reply.get("content") or "",
        reasoning_content=turn.reply.get("reasoning_content"),
        tool_calls=_tool_calls(turn.reply),
        metrics=atif.Metrics(
            prompt_tokens=turn.prompt_length,
            completion_tokens=len(turn.sampled_ids),
            prompt_token_ids=prompt_ids,
            completion_token_ids=turn.sampled_ids,
            logprobs=turn.logprobs,
        ),
        is_copied_context=copied or None,
        llm_call_count=1,
        extra={
            "turn": turn.index,
            "finish_reason": turn.finish_reason,
            "policy_version": turn.policy_version,
            "seconds": turn.seconds,
        },
    )


def _tool_calls(message: dict[str, Any]) -> list[atif.ToolCall] | None:
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = _arguments(function["arguments"])
        calls.append(
            atif.ToolCall(
                tool_call_id=call["id"],
                function_name=function["name"],
                arguments={} if arguments is None else arguments,
                extra={"arguments_text": function["arguments"]} if arguments is None else None,
            )
        )
    return calls or None


def _arguments(text: str) -> dict[str, Any] | None:
    """The arguments as an object, None where the text is none."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
