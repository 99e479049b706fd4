"""What the service adds to a generate call of a tiny model: `python benchmarks/service_latency.py`.

One caller at a time, held answers, JSON bodies, a new 200-token prompt a call. The same engine in this process is the
measure; the difference is what HTTP, the API process, the channel and the request table cost (the fastest tenth is
the figure to look at on a busy machine). Then 16 callers at once: calls a second through the service.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.service_api import HELD, Api, sampling_config
from builders.tiny_model import build_tiny_model

from drydock.engine.sampling import TorchSamplingEngine
from drydock.service.embedded import EmbeddedService
from drydock.wire.rest import SamplingParams

CALLS = 200
PROMPT_TOKENS = 200


def prompts(count: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(5, 300, (count, PROMPT_TOKENS)).tolist()


def engine_alone(model: str, params: dict) -> list[float]:
    engine = TorchSamplingEngine(model, {"max_seq_len": 2048})
    seconds = []
    for index, prompt in enumerate(prompts(CALLS)):
        started = time.perf_counter()
        engine.submit(str(index), prompt, SamplingParams.model_validate(params))
        while not engine.step():
            pass
        seconds.append(time.perf_counter() - started)
    return seconds


async def through_the_service(api: Api, params: dict) -> list[float]:
    seconds = []
    for prompt in prompts(CALLS):
        started = time.perf_counter()
        await api.result("/bench/generate", json={"prompts": [prompt], "sampling_params": params}, headers=HELD)
        seconds.append(time.perf_counter() - started)
    return seconds


async def at_once(api: Api, params: dict, callers: int) -> float:
    async def caller(share: list[list[int]]) -> None:
        for prompt in share:
            await api.result("/bench/generate", json={"prompts": [prompt], "sampling_params": params}, headers=HELD)

    work = prompts(CALLS * 4)
    started = time.perf_counter()
    await asyncio.gather(*(caller(work[index::callers]) for index in range(callers)))
    return len(work) / (time.perf_counter() - started)


async def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = str(build_tiny_model(Path(folder) / "model"))
        async with EmbeddedService(Path(folder) / "state") as service, Api.of(service) as api:
            await api.post("", json={"job_id": "bench", "sub_job_configs": [sampling_config(model)]})
            await api.wait_for_job("bench")
            for tokens in (1, 16):
                params = {
                    "max_tokens": tokens,
                    "ignore_eos": True,
                    "logprobs": 0,
                    "compact_logprobs": True,
                }
                served, alone = await through_the_service(api, params), engine_alone(model, params)
                for name, part in (("median", 50), ("fastest tenth", 10)):
                    a, b = (statistics.quantiles(times, n=100)[part - 1] * 1e3 for times in (served, alone))
                    print(f"max_tokens {tokens}, {name}: service {a:.2f} ms, engine {b:.2f} ms, added {a - b:.2f} ms")
                print(f"   16 callers: {await at_once(api, params, 16):.0f} calls/s")


asyncio.run(main())
