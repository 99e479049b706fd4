"""What a sandbox costs: start, command and stop alone, then commands in sixteen sandboxes at once.

Usage: python benchmarks/sandbox_exec.py [--environment local|host] [--rounds 30] [--sandboxes 16]
Prints one line a figure: milliseconds as p50 and p95, CPU of the driver and of everything it started, throughput.
"""

import argparse
import asyncio
import logging
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.host import HostEnvironment
from drydock.sandbox.local import LocalEnvironment

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY data.txt .\nENV NAME=value\n"
KINDS: dict[str, type[SandboxEnvironment]] = {"local": LocalEnvironment, "host": HostEnvironment}


def make(kind: type[SandboxEnvironment], directory: Path) -> SandboxEnvironment:
    """A sandbox of a small task with a Dockerfile of the usual kind."""
    context = directory / "environment"
    if not context.exists():
        context.mkdir()
        (context / "Dockerfile").write_text(DOCKERFILE)
        (context / "data.txt").write_text("data\n")
    return kind(
        environment_dir=context,
        environment_name="bench",
        session_id="bench__env",
        trial_paths=TrialPaths(directory / "trial"),
        task_env_config=EnvironmentConfig(),
        logger=logging.getLogger("bench"),
        state_dir=str(directory / "state"),
    )


async def timed(action: Callable[[], Awaitable[object]], into: list[float]) -> None:
    """Await `action()` and append the milliseconds it took."""
    began = time.perf_counter()
    await action()
    into.append((time.perf_counter() - began) * 1000)


def show(name: str, values: list[float]) -> None:
    """Print p50 and p95."""
    print(f"{name:<28} p50 {statistics.median(values):7.2f} ms   p95 {sorted(values)[int(len(values) * 0.95)]:7.2f} ms")


def cpu_s(who: int) -> float:
    """CPU seconds used so far by the driver or by its finished children."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


async def alone(kind: type[SandboxEnvironment], directory: Path, rounds: int) -> None:
    """One sandbox after the other."""
    figures: dict[str, list[float]] = {
        name: [] for name in ("start", "exec true", "exec 10 kB", "upload", "kill", "stop")
    }
    tests = directory / "tests"
    tests.mkdir()
    (tests / "test.sh").write_text("echo 1\n")
    own, children = cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)
    for _ in range(rounds):
        environment = make(kind, directory)
        await timed(lambda e=environment: e.start(force_build=False), figures["start"])
        for _ in range(8):
            await timed(lambda e=environment: e.exec("true", timeout_sec=30), figures["exec true"])
        await timed(lambda e=environment: e.exec("head -c 10000 /etc/services", timeout_sec=30), figures["exec 10 kB"])
        await timed(lambda e=environment: e.upload_dir(tests, "/tests"), figures["upload"])
        await timed(environment.kill_processes, figures["kill"])
        await timed(lambda e=environment: e.stop(delete=True), figures["stop"])
    for name, values in figures.items():
        show(name, values)
    own, children = cpu_s(resource.RUSAGE_SELF) - own, cpu_s(resource.RUSAGE_CHILDREN) - children
    print(
        f"{'CPU of a whole sandbox':<28} driver {own / rounds * 1000:.1f} ms, sandbox {children / rounds * 1000:.1f} ms"
    )


async def together(kind: type[SandboxEnvironment], directory: Path, sandboxes: int, commands: int) -> None:
    """Commands in several sandboxes at once, and trials' worth of sandboxes at once."""
    environments = [make(kind, directory) for _ in range(sandboxes)]
    began = time.perf_counter()
    await asyncio.gather(*(environment.start(force_build=False) for environment in environments))
    print(f"{f'start {sandboxes} at once':<28} {(time.perf_counter() - began) * 1000:.0f} ms")
    latencies: list[float] = []

    async def worker(environment: SandboxEnvironment) -> None:
        for _ in range(commands):
            await timed(lambda: environment.exec("true", timeout_sec=30), latencies)

    own, began = cpu_s(resource.RUSAGE_SELF), time.perf_counter()
    await asyncio.gather(*(worker(environment) for environment in environments))
    seconds = time.perf_counter() - began
    own = cpu_s(resource.RUSAGE_SELF) - own
    count = sandboxes * commands
    print(f"{'':<28} {count / seconds:.0f} commands per second, driver CPU {own / count * 1000:.2f} ms each")
    show(f"exec, {sandboxes} at once", latencies)
    began = time.perf_counter()
    await asyncio.gather(*(environment.stop(delete=True) for environment in environments))
    print(f"{f'stop {sandboxes} at once':<28} {(time.perf_counter() - began) * 1000:.0f} ms")

    async def trial() -> None:
        environment = make(kind, directory)
        await environment.start(force_build=False)
        for _ in range(8):
            await environment.exec("true", timeout_sec=30)
        await environment.stop(delete=True)

    gate = asyncio.Semaphore(sandboxes)

    async def admitted() -> None:
        async with gate:
            await trial()

    began = time.perf_counter()
    await asyncio.gather(*(admitted() for _ in range(sandboxes * 4)))
    print(f"{'start + 8 exec + stop':<28} {sandboxes * 4 / (time.perf_counter() - began):.1f} per second")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", choices=KINDS, default="local")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sandboxes", type=int, default=16)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    kind = KINDS[arguments.environment]
    print(f"{arguments.environment}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as directory:
        await alone(kind, Path(directory), arguments.rounds)
        await together(kind, Path(directory), arguments.sandboxes, 50)


if __name__ == "__main__":
    asyncio.run(main())
