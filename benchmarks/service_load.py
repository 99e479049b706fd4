"""Many callers at once: `python benchmarks/service_load.py [--seconds 60] [--pollers 200] [--generates 64]`.

64 callers each keep one generate of the tiny model in flight (16 to 64 tokens, held answers as our client asks for
them), while 200 callers, each with a connection of its own, poll requests that are over once a second, spread evenly.
Held at the end: no call failed, and the 99th percentile of a poll's time is under 100 ms. The callers speak HTTP by
hand, since a client library would take more of the two cores than the service; how late they were themselves is
printed.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.service_api import PREFIX, Api, sampling_config
from builders.tiny_model import build_tiny_model

from drydock.service.embedded import EmbeddedService

TARGET_S = 0.100
POLL_INTERVAL_S = 1.0
ANSWER_S = 30.0
HELD = "Prefer: wait=25\r\n"
PARAMS = {"ignore_eos": True, "temperature": 1.0}
JOB = "bench"


class Seen:
    """What happened: seconds of each poll and each generate, and how late the callers' own event loop was."""

    def __init__(self) -> None:
        self.polls: list[float] = []
        self.generates: list[float] = []
        self.lags: list[float] = []
        self.errors: list[str] = []


class Caller:
    """One connection; an async context manager."""

    def __init__(self, service: EmbeddedService, seen: Seen) -> None:
        self._port = int(service.base_url.rpartition(":")[2])
        self._fixed = f"Host: 127.0.0.1\r\nAuthorization: Bearer {service.token.get_secret_value()}\r\n"
        self._seen = seen

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def call(self, method: str, path: str, body: Any = None, headers: str = "") -> dict[str, Any]:
        """The answer's object; {} and a noted error when it is no success."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {PREFIX}{path} HTTP/1.1\r\n{self._fixed}{headers}Content-Length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._reader.readuntil(b"\r\n\r\n")
                length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                data = await self._reader.readexactly(length)
        except (OSError, EOFError, TimeoutError) as error:
            self._seen.errors.append(f"{method} {path}: {error!r}")
            raise
        if b" 200 " not in answer[:20]:
            self._seen.errors.append(f"{method} {path}: {answer[:20]!r} {data[:200]!r}")
            return {}
        return json.loads(data)


async def generator(service: EmbeddedService, seen: Seen, ends: float, seed: int) -> None:
    rng = random.Random(seed)
    async with Caller(service, seen) as caller:
        while time.monotonic() < ends:
            body = {
                "prompts": [[rng.randrange(5, 300) for _ in range(100)]],
                "sampling_params": {**PARAMS, "max_tokens": rng.randint(16, 64)},
            }
            started = time.perf_counter()
            state = await caller.call("POST", f"/{JOB}/generate", body, HELD)
            if state.get("status") != "completed":
                seen.errors.append(f"generate ended as {state}")
                continue
            seen.generates.append(time.perf_counter() - started)


async def poller(service: EmbeddedService, seen: Seen, ends: float, path: str, offset_s: float) -> None:
    due = time.monotonic() + offset_s
    async with Caller(service, seen) as caller:
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            seen.lags.append(time.monotonic() - due)
            started = time.perf_counter()
            state = await caller.call("GET", path)
            seen.polls.append(time.perf_counter() - started)
            if state.get("status") != "completed":
                seen.errors.append(f"a poll showed {state}")
            due += POLL_INTERVAL_S


async def load(service: EmbeddedService, api: Api, given: argparse.Namespace) -> Seen:
    seen = Seen()
    paths = []
    for _ in range(8):
        body = {"prompts": [[5, 6, 7]], "sampling_params": {**PARAMS, "max_tokens": 32}}
        state = await api.post(f"/{JOB}/generate", json=body, headers={"Prefer": "wait=25"})
        paths.append(f"/{JOB}/requests/{state['request_id']}")
    ends = time.monotonic() + given.seconds
    async with asyncio.TaskGroup() as tasks:
        for index in range(given.generates):
            tasks.create_task(generator(service, seen, ends, index))
        for index in range(given.pollers):
            offset_s = POLL_INTERVAL_S * index / given.pollers
            tasks.create_task(poller(service, seen, ends, paths[index % len(paths)], offset_s))
    return seen


def report(seen: Seen, seconds: float, api_cpu_s: float, own_cpu_s: float) -> None:
    def line(name: str, times: list[float]) -> float:
        cuts = statistics.quantiles(times, n=100)
        parts = ", ".join(f"p{part} {cuts[part - 1] * 1e3:.1f}" for part in (50, 90, 99))
        print(f"{name}: {len(times)}, {parts}, longest {max(times) * 1e3:.1f} ms")
        return cuts[98]

    p99 = line("polls", seen.polls)
    line("generates", seen.generates)
    line("lateness of the callers themselves", seen.lags)
    print(f"of one core: API process {api_cpu_s / seconds:.0%}, callers {own_cpu_s / seconds:.0%}; ", end="")
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(f"errors: {len(seen.errors)} {seen.errors[:3] or ''}")
    print(f"p99 of a poll {p99 * 1e3:.1f} ms ({'within' if p99 < TARGET_S else 'OVER'} {TARGET_S * 1e3:.0f} ms)")


async def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = str(build_tiny_model(Path(folder) / "model"))
        async with EmbeddedService(Path(folder) / "state") as service, Api.of(service) as api:
            await api.post("", json={"job_id": JOB, "sub_job_configs": [sampling_config(model)]})
            await api.wait_for_job(JOB)
            process = psutil.Process(service.pid)
            before, own, started = sum(process.cpu_times()[:2]), time.process_time(), time.monotonic()
            seen = await load(service, api, given)
            busy = sum(process.cpu_times()[:2]) - before, time.process_time() - own
            report(seen, time.monotonic() - started, *busy)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pollers", type=int, default=200)
    parser.add_argument("--generates", type=int, default=64)
    asyncio.run(main(parser.parse_args()))
