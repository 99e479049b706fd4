"""What the service adds to a forward-backward, and how fast a large frame travels.

    python benchmarks/service_overhead.py [overhead|transfer ...] [--rounds 3] [--threads 1] [--megabytes 300]

overhead: 64 rows x 2,000 tokens with a GRPO loss and log-probs asked for, through the service (our client, loopback)
and by a TrainingEngine in this process, taken in turn: same model of the demo's size, same threads, same batch. On
a shared machine look at the CPU seconds: times of 20 s and more differ by half from round to round there.

transfer: a frame with one array of so many MB, from `encode_frame` in the client to `decode_frame` in the worker
process, over the real route. The engine refuses such a batch by name once it has it whole, so that nothing but the
way is measured. Then the way back: log-probs of 1,024 rows x 5,000 tokens, read again from a finished request.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the service's workers have it

import numpy as np
import psutil
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.service_api import training_config
from builders.tiny_model import build_tiny_model

from drydock.client import TrainingClient
from drydock.client.call import open_call
from drydock.client.forward_backward import post_batch
from drydock.client.polling import result_of
from drydock.engine.training import TrainingEngine
from drydock.errors import RequestFailed
from drydock.service.embedded import EmbeddedService
from drydock.wire.rest import JobCreate

ROWS, TOKENS, PROMPT = 64, 2_000, 1_000
OVERHEAD_TARGET, SPEED_TARGET = 0.10, 200.0
LARGE = (1_024, 5_000)
JOB = "bench"


def batch(rng: np.random.Generator) -> dict[str, Any]:
    """64 full rows in groups of 8 that share a prompt of 1,000 tokens, as rollouts of a group do."""
    prompts = np.repeat(rng.integers(5, 500, (ROWS // 8, PROMPT)), 8, axis=0)
    ids = np.concatenate([prompts, rng.integers(5, 500, (ROWS, TOKENS - PROMPT))], axis=1)
    mask = np.zeros(ids.shape, np.float32)
    mask[:, PROMPT - 1 : -1] = 1.0
    advantages = np.repeat(rng.standard_normal((ROWS, 1)), TOKENS, axis=1).astype(np.float32)
    old = np.full(ids.shape, -6.9, np.float32)
    return {
        "args": (),
        "kwargs": {"input_ids": ids, "attention_mask": np.ones_like(ids)},
        "context": {"loss_mask": mask, "advantages": advantages, "old_log_probs_shifted": old},
        "processing": {"loss_fn": "grpo", "config": {}, "post": ["compute_logprobs"]},
    }


async def overhead(client: TrainingClient, engine: TrainingEngine, service_pid: int, rounds: int) -> None:
    request = batch(np.random.default_rng(0))
    api = psutil.Process(service_pid)
    [worker] = api.children()
    engine.forward_backward(request)
    await client.forward_backward(JOB, request)
    ratios: list[float] = []
    cpu_ratios: list[float] = []
    for index in range(rounds):
        way, work, started = cpu_s(api) + time.process_time(), cpu_s(worker), time.perf_counter()
        served = await client.forward_backward(JOB, request)
        served_s = time.perf_counter() - started
        way, work = cpu_s(api) + time.process_time() - way, cpu_s(worker) - work
        direct_cpu_s, started = time.process_time(), time.perf_counter()
        direct = engine.forward_backward(request)
        direct_s, direct_cpu_s = time.perf_counter() - started, time.process_time() - direct_cpu_s
        assert np.isclose(served.avg_loss, direct["avg_loss"], rtol=1e-4, atol=1e-6), (served.avg_loss, direct)
        ratios.append(served_s / direct_s)
        cpu_ratios.append((way + work) / direct_cpu_s)
        print(
            f"  round {index}: service {served_s:.2f} s, engine {direct_s:.2f} s; CPU: {work:.2f} s in the worker, "
            f"{way:.3f} s in client and API process; {direct_cpu_s:.2f} s in the engine alone",
            flush=True,
        )
    added, cpu_added = statistics.median(ratios) - 1, statistics.median(cpu_ratios) - 1
    verdict = "within" if min(added, cpu_added) < OVERHEAD_TARGET else "OVER"
    print(
        f"overhead, median of ratios: time {added:+.1%}, CPU {cpu_added:+.1%} ({verdict} {OVERHEAD_TARGET:.0%})",
        flush=True,
    )


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def transfer(client: TrainingClient, megabytes: int, rounds: int) -> None:
    large = np.random.default_rng(0).standard_normal(megabytes * 125_000)
    tiny = np.full((1, 4), 7, np.int64)
    request = {"args": (large,), "kwargs": {"input_ids": tiny, "attention_mask": np.ones_like(tiny)}}
    report("client to worker", megabytes, [await refused_s(client, request) for _ in range(rounds)])
    rows, width = LARGE
    ids, real = np.full(LARGE, 7, np.int64), np.zeros(LARGE, np.int64)
    real[:, :4] = 1
    asked = {
        "kwargs": {"input_ids": ids, "attention_mask": real},
        "context": {"loss_mask": real.astype(np.float32)},
        "processing": {"loss_fn": "causal_cross_entropy", "config": {}, "post": ["compute_logprobs"]},
    }
    asked["context"]["loss_mask"][:, 3:] = 0
    request_id, size = await finished(client, asked)
    report(f"log-probs of {rows:,} x {width:,} back", size, [await read_s(client, request_id) for _ in range(rounds)])


def report(what: str, megabytes: float, times: list[float]) -> None:
    speeds = [megabytes / seconds for seconds in times]
    verdict = "reached" if max(speeds) >= SPEED_TARGET else "MISSED"
    print(
        f"transfer, {what}: {megabytes:.0f} MB, median {statistics.median(speeds):.0f} MB/s, "
        f"best {max(speeds):.0f} MB/s ({SPEED_TARGET:.0f} MB/s {verdict})",
        flush=True,
    )


async def refused_s(client: TrainingClient, request: dict[str, Any]) -> float:
    started = time.perf_counter()
    try:
        await client.forward_backward(JOB, request)
    except RequestFailed as failure:
        if "args must be empty" not in str(failure):
            raise
        return time.perf_counter() - started
    raise AssertionError("the engine took a batch that it should refuse")


async def finished(client: TrainingClient, request: dict[str, Any]) -> tuple[str, float]:
    """Id of a finished request, and the MB of its result."""
    async with open_call("forward-backward", JOB, 300) as call:
        accepted = await post_batch(client._transport, call, JOB, request, hold_s=60, group_id=str(uuid.uuid4()))
        result = await result_of(client._transport, call, JOB, accepted, 30)
    [logprobs] = result["post_process_outputs"].values()
    return accepted["request_id"], logprobs.nbytes / 1e6


async def read_s(client: TrainingClient, request_id: str) -> float:
    started = time.perf_counter()
    async with open_call("read a result", JOB, 300) as call:
        await result_of(client._transport, call, JOB, {"request_id": request_id}, 30)
    return time.perf_counter() - started


async def main(parts: list[str], rounds: int, threads: int, megabytes: int) -> None:
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        path = build_tiny_model(
            Path(folder) / "model", hidden_size=128, head_dim=32, vocab_size=1_024, max_positions=8_192
        )
        config = training_config(str(path), max_seq_len=4_096, torch_threads=threads)
        async with EmbeddedService(Path(folder) / "state") as service:
            token = service.token.get_secret_value()
            async with TrainingClient(service.base_url, token=token) as client:
                await client.create_job(JobCreate.model_validate({"job_id": JOB, "sub_job_configs": [config]}))
                await client.wait_for_job(JOB, 120)
                if "overhead" in parts:
                    engine = TrainingEngine(config["model_name"], config["training_config"])
                    assert service.pid is not None
                    await overhead(client, engine, service.pid, rounds)
                    del engine
                if "transfer" in parts:
                    await transfer(client, megabytes, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["overhead", "transfer"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=300)
    given = parser.parse_args()
    asyncio.run(main(given.parts, given.rounds, given.threads, given.megabytes))
