"""64 ragged requests on the torch sampling engine and on Hugging Face `generate`, and what a second turn costs.

    python benchmarks/sampling_ragged.py [--hidden 128] [--layers 2] [--threads 1] [--device cpu] [--dtype float32]

Prompts of 100 to 2,000 tokens, outputs of 16 to 256, all random, every request with a length of its own. `generate`
gets each batching that could suit it: batches of 4 to 64 rows, sorted by prompt or by output length, left-padded, each
batch run to its longest output. Its best one is what the engine is compared with. Only tokens that were asked for
count. The second turn extends a history of 2,000 tokens by 32; compared is the time to its first token with that of
the history itself.

Prints seconds of process time on a CPU (a busy machine disturbs little), of wall time on a GPU.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.tiny_model import build_tiny_model

from drydock.engine.sampling import TorchSamplingEngine
from drydock.wire.rest import SamplingParams

REQUESTS, TOKEN_LIMIT, HISTORY, TURN = 64, 390, 2000, 32

type Ask = tuple[list[int], int]
"""A prompt and how many tokens to sample."""


def asks(seed: int) -> list[Ask]:
    """The workload."""
    rng = np.random.default_rng(seed)
    lengths = zip(rng.integers(100, 2001, REQUESTS).tolist(), rng.integers(16, 257, REQUESTS).tolist(), strict=True)
    return [(rng.integers(0, TOKEN_LIMIT, prompt).tolist(), output) for prompt, output in lengths]


class Clock:
    """Seconds of a call: process time on a CPU, wall time with the device drained on a GPU."""

    def __init__(self, device: str) -> None:
        self._gpu = device.startswith("cuda")

    def __call__(self, work: Callable[[], None]) -> float:
        if self._gpu:
            torch.cuda.synchronize()
        now = time.perf_counter if self._gpu else time.process_time
        start = now()
        work()
        if self._gpu:
            torch.cuda.synchronize()
        return now() - start


def run_engine(engine: TorchSamplingEngine, work: list[Ask]) -> None:
    """All requests at once, no prefix known before."""
    engine.reset_prefix_cache()
    for index, (prompt, output) in enumerate(work):
        engine.submit(str(index), prompt, SamplingParams(max_tokens=output, ignore_eos=True))
    sampled = 0
    while engine.has_work:
        sampled += sum(len(result.token_ids) for result in engine.step())
    assert sampled == sum(output for _, output in work)


@torch.inference_mode()
def run_generate(model: PreTrainedModel, work: list[Ask], rows: int) -> None:
    """Batches of `rows` in the order given."""
    for first in range(0, len(work), rows):
        batch = work[first : first + rows]
        width, longest = max(len(prompt) for prompt, _ in batch), max(output for _, output in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (prompt, _) in enumerate(batch):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        model.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=longest,
            min_new_tokens=longest,
            do_sample=True,
            top_k=0,
        )


def first_token(engine: TorchSamplingEngine, clock: Clock, prompt: list[int]) -> tuple[float, list[int]]:
    """Seconds until the first token of `prompt`, and the 8 tokens that were sampled."""
    engine.submit("turn", prompt, SamplingParams(max_tokens=8, ignore_eos=True), "rollout")
    seconds = clock(lambda: _ignore(engine.step()))
    while engine.has_work:
        for result in engine.step():
            return seconds, result.token_ids
    raise AssertionError


def _ignore(_: object) -> None:
    pass


def second_turn(engine: TorchSamplingEngine, clock: Clock) -> tuple[float, float]:
    """(first prefill, second turn): medians over 5 histories, in seconds."""
    rng = np.random.default_rng(1)
    firsts, seconds = [], []
    for _ in range(5):
        history = rng.integers(0, TOKEN_LIMIT, HISTORY).tolist()
        cost, sampled = first_token(engine, clock, history)
        firsts.append(cost)
        turn = history + sampled + rng.integers(0, TOKEN_LIMIT, TURN).tolist()
        seconds.append(first_token(engine, clock, turn)[0])
    return float(np.median(firsts)), float(np.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batches", type=int, nargs="*", default=[4, 8, 16, 32, 64])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = build_tiny_model(
            Path(folder),
            hidden_size=arguments.hidden,
            head_dim=arguments.hidden // 4,
            layers=arguments.layers,
            vocab_size=800,
        )
        engine = TorchSamplingEngine(str(path), {}, dtype=arguments.dtype, device=arguments.device)
    clock = Clock(arguments.device)
    work = asks(0)
    useful = sum(output for _, output in work)
    run_engine(engine, work[:8])
    run_generate(engine.model, work[:8], 8)
    ours = min(clock(lambda: run_engine(engine, work)) for _ in range(2))
    print(f"{useful} tokens asked for by {REQUESTS} requests with {sum(len(p) for p, _ in work)} prompt tokens")
    print(f"{'engine':>32} {ours:>8.2f} s {useful / ours:>8.0f} tokens/s")
    best = float("inf")
    for name, key in (("prompt", lambda ask: len(ask[0])), ("output", lambda ask: ask[1])):
        for rows in arguments.batches:
            seconds = clock(lambda rows=rows, key=key: run_generate(engine.model, sorted(work, key=key), rows))
            best = min(best, seconds)
            label = f"generate, by {name}, {rows} rows"
            print(f"{label:>32} {seconds:>8.2f} s {useful / seconds:>8.0f} tokens/s", flush=True)
    print(f"engine / best generate: {best / ours:.2f}")
    first, second = second_turn(engine, clock)
    print(f"second turn: {1e3 * second:.1f} ms, first prefill of {HISTORY}: {1e3 * first:.1f} ms, {second / first:.1%}")


if __name__ == "__main__":
    main()
