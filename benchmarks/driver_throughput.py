"""How many rollouts the driver gets through when the model costs nothing.

Real Harbor trials, the real OpenHands SDK, the real chat proxy and a real sandbox; only the sampler is scripted and
answers at once. Prints rollouts a second and this process's CPU time per rollout and per turn (sandbox children are
counted apart).

    python benchmarks/driver_throughput.py --rollouts 200 --concurrency 16 --environment local
"""

import argparse
import asyncio
import cProfile
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.scripted_sampler import ScriptedSampler
from builders.tasks import write_task
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.rollout import RolloutPool, RolloutSettings, RolloutSpec, size_default_executor


def tool_call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


REPLIES = [
    tool_call("terminal", command="ls -la"),
    tool_call("terminal", command="echo hello > answer.txt"),
    tool_call("finish", message="done"),
]


async def run(options: argparse.Namespace, work: Path) -> None:
    template = ChatTemplate.load(build_tiny_tokenizer(work / "tokenizer"))
    replies = [*REPLIES[:1] * (options.turns - 2), *REPLIES[1:]]
    sampler = ScriptedSampler(
        template, lambda _, text: replies[min(text.count("<|im_start|>assistant"), options.turns) - 1]
    )
    size_default_executor(options.concurrency)
    tasks = [write_task(work / "tasks" / f"hello-{number}") for number in range(8)]
    settings = RolloutSettings(
        environment=options.environment,
        environment_kwargs={"state_dir": str(work / "sandboxes")} if options.environment in ("local", "host") else {},
        agent_kwargs={"transport": options.transport},
    )

    def specs(count: int) -> list[RolloutSpec]:
        return [
            RolloutSpec(task=task.name, task_path=task, step=0, split="train", repetition=number)
            for number in range(count)
            for task in [tasks[number % len(tasks)]]
        ]

    limits = ProxySettings(context_tokens=100_000, max_new_tokens=1000)
    async with ChatProxy(template, HermesParser(), sampler, limits) as proxy:
        pool = RolloutPool(settings, proxy, options.concurrency)
        await pool.run(specs(options.concurrency))
        profile = cProfile.Profile(time.process_time)
        if options.profile:
            profile.enable()
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        trajectories = await pool.run(specs(options.rollouts), out_dir=work / "trajectories")
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
        children_after = resource.getrusage(resource.RUSAGE_CHILDREN)
        profile.disable()
    outcomes = Counter(trajectory.outcome.value for trajectory in trajectories)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    child_s = children_after.ru_utime + children_after.ru_stime - children.ru_utime - children.ru_stime
    turns = sum(trajectory.turns for trajectory in trajectories)
    rollouts = len(trajectories)
    print(f"outcomes {dict(outcomes)}; errors {Counter(t.error for t in trajectories if t.error).most_common(3)}")
    print(
        f"{rollouts} rollouts, {turns / rollouts:.1f} turns each, {options.concurrency} at once, "
        f"{options.environment}, {options.transport}: {rollouts / seconds:.2f} rollouts/s, "
        f"driver CPU {1000 * cpu_s / rollouts:.1f} ms a rollout ({cpu_s / seconds:.0%} of a core), "
        f"children CPU {1000 * child_s / rollouts:.1f} ms a rollout, peak {after.ru_maxrss / 1024:.0f} MiB"
    )
    for phase in ("sandbox_s", "agent_s", "verifier_s", "total_s"):
        values = sorted(trajectory.timings.get(phase, 0.0) for trajectory in trajectories)
        print(f"  {phase:10} median {1000 * values[len(values) // 2]:7.1f} ms")
    if options.profile:
        profile.dump_stats(options.profile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--environment", default="local")
    parser.add_argument("--transport", choices=("direct", "litellm"), default="direct")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the measured part to this file")
    with tempfile.TemporaryDirectory(prefix="drydock-benchmark-") as work:
        asyncio.run(run(parser.parse_args(), Path(work)))


if __name__ == "__main__":
    main()
