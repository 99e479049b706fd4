"""A run that was stopped and goes on: the same trajectories, metrics and weights as one that was left to itself."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from builders.demo_run import build_demo_run
from builders.driver import driver
from builders.local_sandbox import needs_sandbox
from safetensors.numpy import load_file

from drydock.rollout.trajectory import Trajectory

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(180),
    needs_sandbox,
]

TESTS = str(Path(__file__).parents[1])
REWARD_OF_REPLY = "#!/bin/bash\necho 0.$(cksum < /tmp/reply | cut -d' ' -f1) > /logs/verifier/reward.txt\n"
"""A verifier whose reward follows from what the policy said and from nothing else."""


def arguments(folder: Path, run: Path, *further: str) -> list[str]:
    return [
        "train",
        str(folder / "data" / "run.toml"),
        f"sandbox.state_dir={folder / 'state'}",
        f"trainer.ckpt_path={run}",
        "trainer.max_training_steps=4",
        "trainer.eval_after_train=false",
        "trainer.eval_interval=2",
        "agent.import_path=builders.own_agent:TellingAgent",
        "generator.num_parallel_generation_workers=1",
        "trainer.policy.optimizer_config.lr=1e-2",
        *further,
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the data, and in it `whole`, the folder of a run of four steps."""
    folder = tmp_path_factory.mktemp("resume")
    build_demo_run(folder / "data", train_tasks=8, verifier=REWARD_OF_REPLY)
    with driver(arguments(folder, folder / "whole"), folder / "state", folder, {"PYTHONPATH": TESTS}) as running:
        assert running.end() == 0, running.output
    return folder


def metrics_of(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    unequal = ("timing/", "usage/")
    return [{key: value for key, value in one.items() if not key.startswith(unequal)} for one in records]


def trajectories_of(run: Path) -> dict[str, Any]:
    found = {}
    for file in sorted((run / "trajectories").rglob("*.json")):
        one = Trajectory.read(file)
        samples = [(sample.token_ids, sample.loss_mask, sample.logprobs) for sample in one.record.samples]
        versions = [turn.policy_version for turn in one.record.turns]
        found[str(file.relative_to(run))] = (one.reward, one.advantage, versions, samples)
    return found


def weights_of(run: Path) -> dict[str, Any]:
    [file] = (run / "checkpoints" / "step_4").rglob("model.safetensors")
    return load_file(file)


@pytest.mark.parametrize(
    ("number", "further", "step"),
    [
        pytest.param(signal.SIGKILL, ["trainer.ckpt_interval=2"], 2, id="killed"),
        pytest.param(signal.SIGTERM, ["trainer.save_on_stop=true"], 3, id="saved on SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    undisturbed: Path, tmp_path: Path, number: signal.Signals, further: list[str], step: int
) -> None:
    folder, run = undisturbed, tmp_path / "run"
    command = arguments(folder, run, *further)
    with driver(command, folder / "state", folder, {"PYTHONPATH": TESTS}) as stopped:
        stopped.wait_for(r"step 4 of 4: rollouts")
        stopped.stop(number)
    assert stopped.process.returncode == (-number if number is signal.SIGKILL else 128 + number), stopped.output
    again = [*command, "trainer.resume_mode=latest"]
    with driver(again, folder / "state", folder, {"PYTHONPATH": TESTS}) as running:
        assert running.end() == 0, running.output
    assert f"going on after step {step}, from checkpoint" in running.output
    whole = folder / "whole"
    assert len({one[0] for one in trajectories_of(whole).values()}) > 4
    assert trajectories_of(run) == trajectories_of(whole)
    assert metrics_of(run) == metrics_of(whole)
    expected, found = weights_of(whole), weights_of(run)
    assert expected.keys() == found.keys()
    assert all((expected[name] == found[name]).all() for name in expected)
    if number is signal.SIGKILL:
        assert (run / "set_aside" / "1" / "step_3" / "train").is_dir()
