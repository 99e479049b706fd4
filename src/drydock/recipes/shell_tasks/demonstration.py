"""Scripted conversations that solve shell tasks, cleanly or with the mistakes a sloppy agent makes.

A conversation is a list of chat messages without the system message, as `warm_start` reads it: the user's instruction,
the assistant's tool calls, and the results that the demo's sandbox would give. The results are computed here, not
recorded; a test runs the same commands in a real sandbox and compares.
"""

import json
import random
from typing import Any

from drydock.harness.observation import render_output
from drydock.recipes.shell_tasks.task import Kind, ShellTask, search_command, word, write_command

Message = dict[str, Any]
MAX_OUTPUT_CHARS = 400
"""As `agent.max_output_chars` in run.toml."""


def clean_demonstration(task: ShellTask) -> list[Message]:
    """The expert's conversation."""
    conversation = _Conversation(task)
    if task.kind is Kind.FIND:
        conversation.run(task.search_command, found(task.answer))
    conversation.run(write_command(_as_written(task, task.answer), task.target), "")
    return conversation.finish()


def found(path: str) -> str:
    """`path` as the search prints it."""
    return f"./{path}"


def _as_written(task: ShellTask, answer: str) -> str:
    return found(answer) if task.kind is Kind.FIND else answer


def sloppy_demonstration(task: ShellTask, rng: random.Random) -> list[Message]:
    """A conversation with one plausible mistake that costs the reward."""
    mistakes = [_wrong_answer, _wrong_target, _gives_up]
    if task.kind is Kind.FIND:
        mistakes.append(_guesses_path)
    return rng.choice(mistakes)(task, rng)


def _wrong_answer(task: ShellTask, rng: random.Random) -> list[Message]:
    conversation = _Conversation(task)
    wrong = word(rng)
    if task.kind is Kind.FIND:
        conversation.run(task.search_command, found(task.answer))
        wrong = rng.choice([path for path in sorted(task.files) if path != task.answer])
    conversation.run(write_command(_as_written(task, wrong), task.target), "")
    return conversation.finish()


def _wrong_target(task: ShellTask, rng: random.Random) -> list[Message]:
    conversation = _Conversation(task)
    if task.kind is Kind.FIND:
        conversation.run(task.search_command, found(task.answer))
    conversation.run(write_command(_as_written(task, task.answer), f"{word(rng)}.txt"), "")
    return conversation.finish()


def _gives_up(task: ShellTask, rng: random.Random) -> list[Message]:
    conversation = _Conversation(task)
    if task.kind is Kind.FIND and rng.random() < 0.5:
        conversation.run(task.search_command, found(task.answer))
    return conversation.finish()


def _guesses_path(task: ShellTask, rng: random.Random) -> list[Message]:
    conversation = _Conversation(task)
    missing = word(rng)
    while any(missing in content for content in task.files.values()):
        missing = word(rng)
    conversation.run(search_command(missing), "", exit_code=1)
    guess = rng.choice([path for path in sorted(task.files) if path != task.answer])
    conversation.run(write_command(found(guess), task.target), "")
    return conversation.finish()


class _Conversation:
    def __init__(self, task: ShellTask) -> None:
        self._messages: list[Message] = [{"role": "user", "content": task.instruction}]
        self._calls = 0

    def run(self, command: str, output: str, exit_code: int = 0) -> None:
        self._call("terminal", {"command": command})
        text = render_output(output, exit_code, MAX_OUTPUT_CHARS)
        self._messages.append({"role": "tool", "tool_call_id": f"demo_{self._calls}", "content": text})

    def finish(self) -> list[Message]:
        self._call("finish", {"message": "done"})
        return self._messages

    def _call(self, name: str, arguments: dict[str, str]) -> None:
        self._calls += 1
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"demo_{self._calls}", "type": "function", "function": function}
        self._messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
