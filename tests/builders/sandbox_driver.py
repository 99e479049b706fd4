"""A driver to be killed: it starts, uses and stops sandboxes, of all kinds at once, until it dies.

Usage: python sandbox_driver.py DIRECTORY SEED; state and cache are in DIRECTORY. Prints a line when it begins.
"""

import asyncio
import random
import sys
from pathlib import Path

from builders.sandbox_environment import build_environment

from drydock.sandbox.local import LocalEnvironment

STATE, CACHE = "sandboxes", "cache"


async def sandboxes(directory: Path, name: str, draw: random.Random) -> None:
    """One sandbox after the other, each with a layer of its own to build, at random pace."""
    number = 0
    while True:
        number += 1
        layer = f"RUN echo {name}-{number}-{draw.random()} > /x && sleep 0.05\n" if draw.random() < 0.5 else ""
        environment = build_environment(
            LocalEnvironment,
            directory / f"{name}-{number}",
            f"FROM debian\n{layer}WORKDIR /app\n",
            storage=draw.choice(["memory", "disk"]),
            cache_dir=str(directory / CACHE),
            task={"memory_mb": 256, "cpus": 1},
        )
        environment.settings.state_dir = directory / STATE
        await environment.start(force_build=False)
        await environment.exec("echo x > /tmp/file; setsid sleep 291 > /dev/null 2>&1 & setsid sleep 291 &")
        await asyncio.sleep(draw.random() * 0.1)
        await environment.kill_processes()
        await environment.stop(delete=True)


async def main() -> None:
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    print("begun", flush=True)
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(sandboxes(directory, f"s{number}", random.Random(f"{seed}/{number}")))


if __name__ == "__main__":
    asyncio.run(main())
