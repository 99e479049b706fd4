"""How fast the torch sampling engine is, beside Hugging Face `generate`, on a tiny model and one CPU core.

    python benchmarks/sampling_engine.py [--threads 1] [--hidden 128]

Prints CPU seconds (process time), so that a busy machine disturbs little: decode alone at several batch sizes, then
a many-turn workload (every turn extends the last by what a tool would answer) with and without the prefix cache.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.tiny_model import build_tiny_model

from drydock.engine.sampling import TorchSamplingEngine
from drydock.wire.rest import SamplingParams

TOKEN_LIMIT = 390


def decode_alone(engine: TorchSamplingEngine, rows: int) -> tuple[float, float]:
    """(engine, generate): seconds a decode step at contexts of 150-500 tokens, the best of 5 stretches of 20 steps."""
    rng = np.random.default_rng(0)
    engine.reset_prefix_cache()
    for i in range(rows):
        prompt = rng.integers(0, TOKEN_LIMIT, int(rng.integers(150, 400))).tolist()
        engine.submit(str(i), prompt, SamplingParams(max_tokens=101, ignore_eos=True))
    engine.step()
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(19):
            engine.step()
        best = min(best, (time.process_time() - start) / 19)
    while engine.has_work:
        engine.step()
    prompts = torch.from_numpy(rng.integers(0, TOKEN_LIMIT, (rows, 300)))
    start = time.process_time()
    engine.model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=60, min_new_tokens=60, do_sample=True
    )
    return best, (time.process_time() - start) / 60


def turns(engine: TorchSamplingEngine, concurrency: int, rollouts: int = 48, turn_count: int = 4) -> tuple[int, float]:
    """(sampled tokens, seconds) of rollouts whose turns extend each other, `concurrency` at a time."""
    rng = np.random.default_rng(1)
    engine.reset_prefix_cache()
    system = rng.integers(0, TOKEN_LIMIT, 110).tolist()
    tasks = [rng.integers(0, TOKEN_LIMIT, 40).tolist() for _ in range(rollouts // 8)]
    histories = [system + tasks[i // 8] for i in range(rollouts)]
    done = [0] * rollouts
    waiting = list(range(rollouts))
    active: set[int] = set()
    sampled = 0

    def submit(index: int) -> None:
        params = SamplingParams(max_tokens=int(rng.integers(20, 41)), ignore_eos=True)
        engine.submit(f"{index}/{done[index]}", histories[index], params, f"rollout-{index}")

    start = time.process_time()
    while waiting or active:
        while waiting and len(active) < concurrency:
            active.add(waiting[0])
            submit(waiting.pop(0))
        for result in engine.step():
            index = int(result.request_id.partition("/")[0])
            sampled += len(result.token_ids)
            answer = rng.integers(0, TOKEN_LIMIT, int(rng.integers(20, 60))).tolist()
            histories[index] = histories[index] + result.token_ids + answer
            done[index] += 1
            if done[index] < turn_count:
                submit(index)
            else:
                active.discard(index)
    return sampled, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        head_dim = arguments.hidden // 4
        path = build_tiny_model(Path(folder), hidden_size=arguments.hidden, head_dim=head_dim, vocab_size=800)
        engine = TorchSamplingEngine(str(path), {})
        plain = TorchSamplingEngine(str(path), {"prefix_cache_tokens": 0})
    decode_alone(engine, 2)
    print(f"{'decode, rows':>14} {'ms a step':>10} {'tokens/s':>10} {'generate, tokens/s':>20}")
    for rows in (1, 8, 16, 32, 64):
        ours, theirs = decode_alone(engine, rows)
        print(f"{rows:>14} {1e3 * ours:>10.2f} {rows / ours:>10.0f} {rows / theirs:>20.0f}")
    print(f"\n{'turns, rows':>14} {'tokens/s':>10} {'no prefix cache':>20} {'ratio':>8}")
    for rows in (1, 8, 16, 32):
        rates = [sampled / seconds for sampled, seconds in (turns(engine, rows), turns(plain, rows))]
        print(f"{rows:>14} {rates[0]:>10.0f} {rates[1]:>20.0f} {rates[0] / rates[1]:>8.2f}")


if __name__ == "__main__":
    main()
