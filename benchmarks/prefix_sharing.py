"""What computing a shared prefix once is worth in training, on a tiny model and one CPU core.

    python benchmarks/prefix_sharing.py [--threads 1] [--hidden 128]

Prints CPU seconds (process time) of one forward-backward call, prefixes shared and not, side by side.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.tiny_model import build_tiny_model
from builders.train_batch import grouped_rows, request_of

from drydock.engine.training import TrainingEngine

SHAPES = {
    "1 prompt of 1500, 8 responses of <= 300": {
        "groups": 1,
        "group_size": 8,
        "system": 1500,
        "prompt": 0,
        "response": 300,
    },
    "8 groups of 8: system 300, task 60, <= 200": {
        "groups": 8,
        "group_size": 8,
        "system": 300,
        "prompt": 60,
        "response": 200,
    },
    "64 tasks of 1: system 300, task 60, <= 200": {
        "groups": 64,
        "group_size": 1,
        "system": 300,
        "prompt": 60,
        "response": 200,
    },
    "nothing shared: 16 rows of <= 400": {"groups": 16, "group_size": 1, "system": 0, "prompt": 1, "response": 400},
}


def seconds(engine: TrainingEngine, request: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """Best of three, and the metrics."""
    best, metrics = float("inf"), {}
    for _ in range(3):
        start = time.process_time()
        metrics = engine.forward_backward(request)["metrics"]
        best = min(best, time.process_time() - start)
        engine.step(0.0)
    return best, metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        head_dim = arguments.hidden // 4
        path = build_tiny_model(Path(folder), hidden_size=arguments.hidden, head_dim=head_dim, vocab_size=800)
        shared, plain = (TrainingEngine(str(path), {"prefix_sharing": share}) for share in (True, False))
    print(f"{'shape':<45} {'shared s':>9} {'plain s':>9} {'speed-up':>9} {'tokens saved':>13}")
    for name, shape in SHAPES.items():
        request = request_of(grouped_rows(np.random.default_rng(0), **shape))
        (ours, metrics), (theirs, _) = seconds(shared, request), seconds(plain, request)
        saved = 1 - metrics["prefix_sharing/computed_tokens"] / metrics["prefix_sharing/row_tokens"]
        print(f"{name:<45} {ours:>9.3f} {theirs:>9.3f} {theirs / ours:>9.2f} {saved:>13.0%}")


if __name__ == "__main__":
    main()
