"""The demo's tasks without sandbox, agent SDK or service: a shell in memory, and rollouts in it token for token.

The shell knows the commands that the demo's tasks need and answers all others as a shell does that lacks them. What it
prints is rendered as the harness does. Rollouts run side by side through one sampling engine, each with the proxy's
own ledger and parser, so the rows that are trained on are those that the real thing would record.
"""

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from drydock.chat.messages import Message, parse_message
from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.types import SampleResult
from drydock.harness.observation import render_output
from drydock.harness.tool_schemas import tool_schemas
from drydock.proxy.ledger import Ledger, Prompt
from drydock.proxy.record import LedgerSample
from drydock.proxy.sampler import SampledTurn
from drydock.recipes.shell_tasks.demonstration import MAX_OUTPUT_CHARS
from drydock.recipes.shell_tasks.task import ShellTask, draw_task
from drydock.wire.rest import SamplingParams

SYSTEM = "You solve shell tasks in the working directory."
TOOLS = tool_schemas(["terminal", "finish"])
MAX_TURNS, TURN_TOKENS = 4, 48
ECHO = re.compile(r"echo (\S+(?: \S+)*) > (\S+)")
GREP = re.compile(r"grep -rl (\S+) \.")


@dataclass
class ShellWorld:
    """The working directory of one rollout."""

    files: dict[str, str]

    def run(self, command: str) -> str:
        """What the agent sees of the command."""
        if match := ECHO.fullmatch(command.strip()):
            self.files[match[2].removeprefix("./")] = match[1] + "\n"
            return render_output("", 0, MAX_OUTPUT_CHARS)
        if match := GREP.fullmatch(command.strip()):
            found = [f"./{path}" for path, content in self.files.items() if match[1] in content]
            return render_output("\n".join(found), 0 if found else 1, MAX_OUTPUT_CHARS)
        return render_output("bash: command not found", 127, MAX_OUTPUT_CHARS)


@dataclass
class Rollout:
    """One attempt at a task."""

    task: ShellTask
    world: ShellWorld
    ledger: Ledger
    messages: list[Message]
    turns: int = 0
    ended: bool = False
    ids: Iterator[int] = field(default_factory=itertools.count)

    @property
    def reward(self) -> float:
        """As the task's verifier gives it."""
        written = "".join(self.world.files.get(self.task.target, "").split())
        return float(written.removeprefix("./") == self.task.answer)

    @property
    def sample(self) -> LedgerSample:
        """The training row."""
        [row] = self.ledger.samples()
        return row

    def take(self, prompt: Prompt, result: SampleResult, template: ChatTemplate) -> None:
        """Record a sampled turn and do what it says."""
        reply = HermesParser().parse(template.turn_text(result.token_ids), lambda: f"call_{next(self.ids)}")
        turn = SampledTurn(tuple(result.token_ids), tuple(result.logprobs), 0, result.finish_reason, result.text)
        self.ledger.record(prompt, turn, reply)
        self.messages.append(Message("assistant", reply.content or "", reply.calls))
        self.turns += 1
        self.ended = not reply.calls or self.turns == MAX_TURNS
        for call in reply.calls:
            self.messages.append(Message("tool", self._answer(call.name, call.arguments), tool_call_id=call.id))

    def _answer(self, name: str, arguments: str) -> str:
        if name == "finish":
            self.ended = True
            return "ended"
        try:
            command = json.loads(arguments).get("command")
        except (ValueError, AttributeError):
            command = None
        return self.world.run(command) if name == "terminal" and isinstance(command, str) else "bad call"


def rollouts_of(
    tasks: Sequence[ShellTask],
    sampler: TorchSamplingEngine,
    template: ChatTemplate,
    *,
    group_size: int = 1,
    temperature: float = 1.0,
) -> list[list[Rollout]]:
    """`group_size` finished rollouts of each task."""
    system = parse_message({"role": "system", "content": SYSTEM}, 0)
    groups = [
        [
            Rollout(
                task,
                ShellWorld(dict(task.files)),
                Ledger(template),
                [system, parse_message({"role": "user", "content": task.instruction}, 1)],
            )
            for _ in range(group_size)
        ]
        for task in tasks
    ]
    params = SamplingParams(
        max_tokens=TURN_TOKENS, temperature=temperature, logprobs=0, stop_token_ids=list(template.stop_ids)
    )
    running = {str(number): rollout for number, rollout in enumerate(itertools.chain(*groups))}
    while running:
        prompts = {name: rollout.ledger.extend(rollout.messages, TOOLS) for name, rollout in running.items()}
        for name, prompt in prompts.items():
            sampler.submit(name, list(prompt.ids), params, routing_key=name)
        while sampler.has_work:
            for result in sampler.step():
                running[result.request_id].take(prompts[result.request_id], result, template)
        running = {name: rollout for name, rollout in running.items() if not rollout.ended}
    return groups


def drawn_tasks(seed: str, count: int) -> list[ShellTask]:
    """Tasks of the demo's distribution."""
    rng = random.Random(seed)
    return [draw_task(rng, f"{seed}-{number}") for number in range(count)]
