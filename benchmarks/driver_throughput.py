"""How many rollouts the driver gets through when the model costs nothing.

Real Harbor trials, the real OpenHands SDK, the real chat proxy and a real sandbox; only the sampler is scripted and
answers at once. Prints rollouts and turns a second, and the CPU time a rollout of the driver, of its shards and of
the sandboxes.

    python benchmarks/driver_throughput.py --rollouts 200 --concurrency 16 --environment local
    python benchmarks/driver_throughput.py --rollouts 192 --concurrency 64 --turns 9 --processes 2
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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.policy import by_turn
from builders.scripted_shard import POOL, ScriptedSetup, scripted_shards
from builders.tasks import write_task
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.rollout import RolloutPool, RolloutRunner, RolloutSettings, RolloutSpec, size_default_executor
from drydock.rollout.shards import RolloutShards


def tool_call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


REPLIES = [
    tool_call("terminal", command="ls -la"),
    tool_call("terminal", command="echo hello > answer.txt"),
    tool_call("finish", message="done"),
]


@asynccontextmanager
async def running_pool(setup: ScriptedSetup, processes: int, logs: Path) -> AsyncIterator[RolloutRunner]:
    """A pool with a scripted policy, in this process or in shards."""
    if processes > 1:
        async with RolloutShards(scripted_shards(setup, processes, logs)) as shards:
            yield shards.pool(POOL, setup.concurrency)
        return
    size_default_executor(setup.concurrency)
    template = ChatTemplate.load(setup.tokenizer)
    async with ChatProxy(template, HermesParser(), by_turn(template, setup.replies), setup.limits) as proxy:
        yield RolloutPool(setup.rollouts, proxy, setup.concurrency)


def cpu_seconds() -> tuple[float, float, float]:
    """Of this process, of its shards, and of the sandboxes of both."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    shards = [child.cpu_times() for child in psutil.Process().children() if "scripted_shard.py" in str(child.cmdline())]
    return (
        own.ru_utime + own.ru_stime,
        sum(shard.user + shard.system for shard in shards),
        children.ru_utime + children.ru_stime + sum(shard.children_user + shard.children_system for shard in shards),
    )


async def run(options: argparse.Namespace, work: Path) -> None:
    tasks = [write_task(work / "tasks" / f"hello-{number}") for number in range(8)]
    setup = ScriptedSetup(
        tokenizer=build_tiny_tokenizer(work / "tokenizer"),
        replies=[*REPLIES[:1] * (options.turns - 2), *REPLIES[1:]],
        rollouts=RolloutSettings(
            environment=options.environment,
            environment_kwargs={"state_dir": str(work / "sandboxes")}
            if options.environment in ("local", "host")
            else {},
            agent_kwargs={"transport": options.transport},
        ),
        limits=ProxySettings(context_tokens=100_000, max_new_tokens=1000),
        concurrency=options.concurrency,
    )

    def specs(count: int) -> list[RolloutSpec]:
        return [
            RolloutSpec(task=task.name, task_path=task, step=0, split="train", repetition=number)
            for number in range(count)
            for task in [tasks[number % len(tasks)]]
        ]

    async with running_pool(setup, options.processes, work / "logs") as pool:
        await pool.run(specs(options.concurrency))
        profile = cProfile.Profile(time.process_time)
        if options.profile:
            profile.enable()
        started, before = time.perf_counter(), cpu_seconds()
        trajectories = await pool.run(specs(options.rollouts), out_dir=work / "trajectories")
        seconds, after = time.perf_counter() - started, cpu_seconds()
        profile.disable()
    outcomes = Counter(trajectory.outcome.value for trajectory in trajectories)
    driver_s, shards_s, child_s = (end - begin for begin, end in zip(before, after, strict=True))
    turns = sum(trajectory.turns for trajectory in trajectories)
    rollouts = len(trajectories)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"outcomes {dict(outcomes)}; errors {Counter(t.error for t in trajectories if t.error).most_common(3)}")
    print(
        f"{rollouts} rollouts, {turns / rollouts:.1f} turns each, {options.concurrency} at once in {options.processes} "
        f"processes, {options.environment}, {options.transport}: {rollouts / seconds:.2f} rollouts/s, "
        f"{turns / seconds:.1f} turns/s"
    )
    print(
        f"CPU a rollout: driver {1000 * driver_s / rollouts:.1f} ms ({driver_s / seconds:.0%} of a core), shards "
        f"{1000 * shards_s / rollouts:.1f} ms, sandboxes {1000 * child_s / rollouts:.1f} ms; driver's peak "
        f"{peak_mib:.0f} MiB"
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
    parser.add_argument("--processes", type=int, default=1, help="1: all rollouts in the driver; more: in shards")
    parser.add_argument("--environment", default="local")
    parser.add_argument("--transport", choices=("direct", "litellm"), default="direct")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the measured part to this file")
    with tempfile.TemporaryDirectory(prefix="drydock-benchmark-") as work:
        asyncio.run(run(parser.parse_args(), Path(work)))


if __name__ == "__main__":
    main()
