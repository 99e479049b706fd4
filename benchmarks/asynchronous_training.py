"""Asynchronous against synchronous training: the same steps of the demo, with a model that takes its time.

The demo's model answers within milliseconds; here each sampled turn takes `--latency` seconds longer, as that of a
larger model would, without keeping a core busy. For each seed the same run is made with `trainer.max_staleness_steps`
0 and with `--staleness`, one after the other. Time is that of the training steps alone, without warm start and
evaluations; the reward is the held-out evaluation after the last step.

    python benchmarks/asynchronous_training.py --seeds 0 1 2 --steps 40 --latency 2
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from drydock.proxy.sampler import SampledTurn
from drydock.proxy.service_sampler import ServiceSampler
from drydock.wire.rest import SamplingParams


def train(latency_s: float, arguments: Sequence[str]) -> None:
    """`drydock train`, each turn `latency_s` slower."""
    from drydock.cli.main import app

    at_once = ServiceSampler.sample

    async def later(
        self: ServiceSampler, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str
    ) -> SampledTurn:
        await asyncio.sleep(latency_s)
        return await at_once(self, prompt_ids, params, routing_key=routing_key)

    ServiceSampler.sample = later
    sys.argv = ["drydock", "train", *arguments]
    app()


def measure(data: Path, run: Path, seed: int, staleness: int, options: argparse.Namespace) -> tuple[float, float, list]:
    """Seconds of the training steps, the final held-out score, and all steps' records."""
    arguments = [
        f"trainer.seed={seed}",
        f"trainer.max_staleness_steps={staleness}",
        f"trainer.max_training_steps={options.steps}",
        f"trainer.ckpt_path={run}",
        "trainer.eval_before_train=false",
        f"generator.num_parallel_generation_workers={options.workers}",
        f"generator.rollouts_per_process={options.workers}",  # shards would not know of the latency
    ]
    command = [sys.executable, __file__, "--train", str(options.latency), str(data / "run.toml"), *arguments]
    with (run.parent / f"{run.name}.txt").open("w") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=True)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "timing/step" in record]
    scores = [record["eval/all/avg_score"] for record in records if "eval/all/avg_score" in record]
    return sum(record["timing/step"] for record in steps), scores[-1], steps


def compare(options: argparse.Namespace, work: Path) -> None:
    ratios, scores = [], {0: [], options.staleness: []}
    for seed in options.seeds:
        data = work / f"data-{seed}"
        subprocess.run(
            [sys.executable, "-m", "drydock.cli.main", "demo", "prepare", str(data), "--seed", str(seed)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = {}
        for staleness in (0, options.staleness):
            seconds[staleness], score, steps = measure(data, work / f"run-{seed}-{staleness}", seed, staleness, options)
            scores[staleness].append(score)
            last = statistics.fmean(step["reward/avg_raw_reward"] for step in steps[-5:])
            stale = statistics.fmean(step["staleness/mean"] for step in steps)
            print(
                f"seed {seed}, staleness at most {staleness}: {seconds[staleness]:.0f} s for {len(steps)} steps, "
                f"mean staleness {stale:.2f}, reward of the last five {last:.3f}, held-out {score:.3f}",
                flush=True,
            )
        ratios.append(seconds[0] / seconds[options.staleness])
        print(f"seed {seed}: asynchronous {ratios[-1]:.2f} times as fast", flush=True)
    for staleness, found in scores.items():
        print(f"held-out at staleness {staleness}: mean {statistics.fmean(found):.3f} of {found}")
    print(f"speed: {min(ratios):.2f} to {max(ratios):.2f} times, mean {statistics.fmean(ratios):.2f}")


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        train(float(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that each turn takes longer")
    parser.add_argument("--workers", type=int, default=128, help="rollouts at the same time at most; a step has 64")
    parser.add_argument("--staleness", type=int, default=2)
    with tempfile.TemporaryDirectory(prefix="drydock-benchmark-") as work:
        compare(parser.parse_args(), Path(work))


if __name__ == "__main__":
    main()
