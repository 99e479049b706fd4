"""What a turn costs the driver late in a long rollout, against early in it.

One rollout at a time, with the real OpenHands SDK, the real chat proxy and a real sandbox; only the sampler is scripted
and answers at once. Every turn runs a command that prints `--output-bytes`. The cost of a turn is this process's CPU
time from one call of the sampler to the next, the median over a window of turns and over the rollouts.

    python benchmarks/turn_cost.py --turns 160 --rollouts 3
"""

import argparse
import asyncio
import cProfile
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.tasks import write_task
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.proxy.sampler import SampledTurn
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.rollout import RolloutPool, RolloutSettings, RolloutSpec, size_default_executor
from drydock.wire.rest import SamplingParams

WINDOW = 5


def turn(template: ChatTemplate, name: str, **arguments: object) -> SampledTurn:
    text = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    ids = (*template.encode(text), template.turn_end_id)
    return SampledTurn(ids, (-0.5,) * len(ids), 0, "stop", text)


async def run(options: argparse.Namespace, work: Path) -> None:
    template = ChatTemplate.load(build_tiny_tokenizer(work / "tokenizer"))
    started: list[float] = []
    tokens: list[int] = []
    finish = turn(template, "finish", message="done")
    command = turn(template, "terminal", command=f"printf '%0{options.output_bytes}d' 0 | fold -w 80")

    class FreeSampler:
        """Looks at nothing of the prompt but its length."""

        async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
            started.append(time.process_time())
            tokens.append(len(prompt_ids))
            return finish if len(started) == options.turns else command

    size_default_executor(1)
    task = write_task(work / "tasks" / "hello", test="echo 1 > /logs/verifier/reward.txt")
    settings = RolloutSettings(
        environment="local",
        environment_kwargs={"state_dir": str(work / "sandboxes")},
        agent_kwargs={"transport": options.transport, "max_turns": options.turns + 10},
    )
    limits = ProxySettings(context_tokens=10_000_000, max_new_tokens=1000)
    costs: list[list[float]] = []
    async with ChatProxy(template, HermesParser(), FreeSampler(), limits) as proxy:
        pool = RolloutPool(settings, proxy, 1)
        profile = cProfile.Profile(time.process_time)
        for number in range(options.rollouts + 1):
            started.clear()
            tokens.clear()
            if options.profile and number == options.rollouts:
                profile.enable()
            spec = RolloutSpec(task="hello", task_path=task, step=0, split="train", repetition=number)
            [trajectory] = await pool.run([spec])
            profile.disable()
            if trajectory.turns != options.turns:
                raise SystemExit(f"a rollout of {trajectory.turns} turns: {trajectory.outcome}, {trajectory.error}")
            if number:
                costs.append([1000 * (after - before) for before, after in itertools.pairwise(started)])
    if options.profile:
        profile.dump_stats(options.profile)
    print(f"{options.turns} turns, {options.output_bytes} bytes of output each, {options.transport}")
    for late in sorted({10, *range(25, options.turns - WINDOW, 25), 150} & set(range(options.turns - WINDOW))):
        window = [cost for rollout in costs for cost in rollout[late - WINDOW : late + WINDOW]]
        print(f"  turn {late:4}: {statistics.median(window):6.2f} ms of CPU; {tokens[late]} tokens before it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=3)
    parser.add_argument("--turns", type=int, default=160)
    parser.add_argument("--output-bytes", type=int, default=1000)
    parser.add_argument("--profile", type=Path, help="write a cProfile of the last rollout to this file")
    parser.add_argument("--transport", choices=("direct", "litellm"), default="direct")
    with tempfile.TemporaryDirectory(prefix="drydock-benchmark-") as work:
        asyncio.run(run(parser.parse_args(), Path(work)))


if __name__ == "__main__":
    main()
