"""Whether each task's first prompt fits into the context, and whether the turns that are allowed can be reached.

The prompt is the one of the first call of a rollout: system prompt, tools and instruction through the model's own
template. Only the default agent's is known; skills that a task brings along are not counted, nor are the tools of its
MCP servers, which the finding says.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harbor.models.task.task import strip_canary

from drydock.chat.messages import ToolCall
from drydock.chat.template import ChatTemplate
from drydock.chat.template_text import CALL_ID
from drydock.errors import TaskError, TemplateError
from drydock.finding import Finding, Level
from drydock.rollout.task_folder import lists_mcp_servers
from drydock.training.config import RunConfig
from drydock.training.task_set import Task

_SHOWN = 10


def first_prompt_ids(
    task: Path, template: ChatTemplate, system_prompt: str, tools: Sequence[dict[str, Any]]
) -> tuple[int, ...]:
    """The longest first prompt of a task: each of its steps begins a conversation.

    Raises TemplateError for one that the template refuses, TaskError for an instruction that cannot be read.
    """
    system = {"role": "system", "content": system_prompt}
    prompts = [
        template.first_prompt([system, {"role": "user", "content": text}], tools) for text in instructions_of(task)
    ]
    return max(prompts, key=len)


def instructions_of(task: Path) -> list[str]:
    """What the agent is told, step after step, as Harbor reads it. Raises TaskError."""
    try:
        steps = tomllib.loads((task / "task.toml").read_text(encoding="utf-8")).get("steps") or ()
        files = [task / "steps" / step["name"] / "instruction.md" for step in steps] or [task / "instruction.md"]
        return [strip_canary(file.read_text(encoding="utf-8")) for file in files]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TaskError(f"the instruction of {task} cannot be read: {error}") from error


def check_prompts(
    config: RunConfig, tasks: Sequence[Task], template: ChatTemplate, system_prompt: str, tools: list[dict[str, Any]]
) -> list[Finding]:
    """The prompts' finding and, where they fit, that of the turns. Raises TemplateError for a prompt it refuses."""
    lengths = {task: len(first_prompt_ids(task.path, template, system_prompt, tools)) for task in tasks}
    found = prompt_finding(config, lengths)
    with_servers = sum(lists_mcp_servers(task.path) for task in tasks)
    if with_servers:
        uncounted = f"not counted: the tools of MCP servers, in {with_servers} of {len(tasks)} tasks"
        found = replace(found, detail=f"{found.detail}; {uncounted}")
    if not found.ok:
        return [found]
    return [found, turns_finding(config, min(lengths.values()), _tokens_between_turns(template, system_prompt, tools))]


def prompt_finding(config: RunConfig, lengths: dict[Task, int]) -> Finding:
    """Fails for prompts that leave no room to answer, warns of those that leave less than a whole turn."""
    context = config.generator.max_input_length
    turn = config.generator.sampling_params.max_generate_length
    too_long = {task: length for task, length in lengths.items() if length >= context}
    tight = {task: length for task, length in lengths.items() if length + turn > context}
    longest = max(lengths.values())
    if too_long:
        detail = (
            f"generator.max_input_length is {context} tokens, but the first prompt is as long or longer in "
            f"{len(too_long)} of {len(lengths)} tasks: {_listed(too_long)}"
        )
        return Finding("first prompts", Level.FAIL, detail, "raise it, shorten the prompt, or leave the tasks out")
    if tight:
        detail = (
            f"first prompts take up to {longest} of {context} tokens (generator.max_input_length), which leaves no "
            f"whole turn of {turn} (generator.sampling_params.max_generate_length) in {len(tight)} of {len(lengths)} "
            f"tasks: {_listed(tight)}"
        )
        remedy = f"raise generator.max_input_length to {longest + turn} or more, or lower max_generate_length"
        return Finding("first prompts", Level.WARN, detail, remedy)
    return Finding("first prompts", Level.PASS, f"{min(lengths.values())} to {longest} tokens of {context}")


def turns_finding(config: RunConfig, prompt: int, between: int) -> Finding:
    """Fails when not even empty replies and results leave room for all turns.

    prompt: tokens of the shortest first prompt. between: tokens that the template puts from one turn to the next when
    a command printed nothing.
    """
    context, turns = config.generator.max_input_length, config.generator.max_turns
    possible = 1 + max(0, context - prompt - 1) // (between + 1)
    if turns > possible:
        detail = (
            f"generator.max_turns is {turns}, but generator.max_input_length of {context} tokens has room for "
            f"{possible} turns of one token each behind a first prompt of {prompt}"
        )
        return Finding("turns", Level.FAIL, detail, f"lower max_turns to {possible} or less, or raise the context")
    share = (context - prompt - (turns - 1) * between) // turns
    return Finding("turns", Level.PASS, f"{turns} turns leave {share} tokens for each turn with its result")


def _tokens_between_turns(template: ChatTemplate, system_prompt: str, tools: list[dict[str, Any]]) -> int:
    """Tokens from the end of a sampled call to the next turn when the tool's result is empty; 0 where unknown."""
    if not tools:
        return 0
    name = tools[0]["function"]["name"]
    result = {"role": "tool", "content": "", "tool_call_id": CALL_ID, "name": name}
    try:
        ids = template.continuation(
            [result],
            tools,
            tools_key="preflight",
            last_id=template.call_end_id,
            calls=[ToolCall(CALL_ID, name, "{}")],
        )
    except TemplateError:
        return 0
    return len(ids)


def _listed(lengths: dict[Task, int]) -> str:
    ordered = sorted(lengths.items(), key=lambda entry: -entry[1])
    shown = ", ".join(f"{task.name} ({length})" for task, length in ordered[:_SHOWN])
    return shown + (f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else "")
