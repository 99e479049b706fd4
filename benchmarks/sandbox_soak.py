"""Whether a driver that runs for days stays as it is: a thousand whole rollouts, and what the driver holds meanwhile.

Usage: python benchmarks/sandbox_soak.py [--rollouts 1000] [--at-once 16] [--tasks examples/tasks/NAME ...]
Each rollout is a Harbor trial in the local sandbox whose agent is the task's own solution; a tenth are cancelled at a
random point. Prints a row a tenth of the way: rollouts, resident memory, descriptors, threads, children, mounts,
control groups, records, layers held. Exit code 1 when the last row holds more than the second (memory: 10 % more).
"""

import argparse
import asyncio
import gc
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trial import run_trial
from drydock.sandbox.control_groups import group_parents
from drydock.sandbox.layer_store import layer_store
from drydock.sandbox.locations import default_cache_dir

TASK = {
    "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n'
    '[environment]\nnetwork_mode = "no-network"\nmemory_mb = 256\ncpus = 1\n',
    "instruction.md": "Write the word hello into /app/answer.txt.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nRUN useradd -m agent\nCOPY data.txt /app/\nWORKDIR /app\n",
    "environment/data.txt": "data\n",
    "tests/test.sh": "#!/bin/bash\ngrep -qx hello /app/answer.txt && echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\n(sleep 100 &)\nseq 20000\necho hello > /app/answer.txt\n",
}


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the driver holds; memory_mb is resident."""

    rollouts: int
    memory_mb: float
    descriptors: int
    threads: int
    children: int
    mounts: int
    groups: int
    records: int
    layers: int


def holdings(rollouts: int, state: Path) -> Holdings:
    """Look at this process from outside, through /proc."""
    gc.collect()
    process = Path("/proc/self")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    tasks = list((process / "task").iterdir())
    store = layer_store(default_cache_dir() / "layers")
    return Holdings(
        rollouts,
        int(status["VmRSS"].split()[0]) / 1024,
        len(list((process / "fd").iterdir())),
        len(tasks),
        sum(len((task / "children").read_text().split()) for task in tasks),
        max(len((task / "mountinfo").read_text().splitlines()) for task in tasks),
        sum(len(list(p.directory.glob(f"drydock-{os.getpid()}-*"))) for p in group_parents()),
        len(list(state.iterdir())) if state.is_dir() else 0,
        store.held,
    )


def write_task(directory: Path) -> Path:
    for name, text in TASK.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory


async def rollout(task: Path, number: int, settings: RolloutSettings, draw: random.Random) -> str:
    """One rollout, or most of one; what came of it."""
    spec = RolloutSpec(task=task.name, task_path=task, step=number, split="train", repetition=0)
    running = asyncio.create_task(run_trial(spec, settings))
    if draw.random() < 0.1:
        await asyncio.sleep(draw.random())
        running.cancel()
    try:
        end = await running
    except asyncio.CancelledError:
        return "cancelled"
    return "failed" if end.failure else "graded"


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--tasks", type=Path, nargs="*")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    place = Path(tempfile.mkdtemp())
    state = place / "sandboxes"
    tasks = [path.resolve() for path in arguments.tasks or ()] or [write_task(place / "hello")]
    settings = RolloutSettings(
        agent="oracle", environment="local", environment_kwargs={"state_dir": str(state)}, work_dir=place / "trials"
    )
    draw = random.Random(1)
    gate = asyncio.Semaphore(arguments.at_once)
    outcomes: dict[str, int] = {}

    async def admitted(number: int) -> None:
        async with gate:
            outcome = await rollout(tasks[number % len(tasks)], number, settings, draw)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    began = time.monotonic()
    rows: list[Holdings] = []
    print("  ".join(f"{field.name:>11}" for field in fields(Holdings)))
    part = max(1, arguments.rollouts // 10)
    for first in range(0, arguments.rollouts, part):
        await asyncio.gather(*(admitted(number) for number in range(first, min(first + part, arguments.rollouts))))
        await asyncio.sleep(0.5)
        rows.append(holdings(first + part, state))
        print("  ".join(f"{value:>11.4g}" for value in astuple(rows[-1])), flush=True)
    seconds = time.monotonic() - began
    print(f"{outcomes}, {arguments.rollouts / seconds:.1f} rollouts per second")
    shutil.rmtree(place)
    early, late = rows[min(1, len(rows) - 1)], rows[-1]
    grown = [field.name for field in fields(Holdings)[2:] if getattr(late, field.name) > getattr(early, field.name)]
    if late.memory_mb > early.memory_mb * 1.1:
        grown.append("memory_mb")
    print(f"grown: {', '.join(grown) or 'nothing'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
