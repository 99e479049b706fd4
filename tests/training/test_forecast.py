"""What a run would take, from its configuration and from what was measured."""

from pathlib import Path

import pytest

from drydock.recipes.shell_tasks.task import Kind, ShellTask
from drydock.recipes.shell_tasks.task_folder import write_task_folder
from drydock.training.config_file import load_run_config
from drydock.training.forecast import Forecast, Measured
from drydock.training.plan import plan_run

RECORDS = [
    {"step": 0, "eval/all/rollouts": 2, "timing/eval": 4.0, "usage/gpu_seconds": 20.0},
    {
        "step": 1,
        "rollouts/graded": 6,
        "rollouts/masked": 2,
        "timing/generate": 16.0,
        "timing/step": 40.0,
        "usage/gpu_seconds": 80.0,
        "usage/storage_gib_hours": 3.0,
    },
]


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for number in range(5):
        write_task_folder(ShellTask(f"t{number}", Kind.WRITE, "Write a to b.", {}, "b", "a"), tmp_path / "train")
    return tmp_path / "train"


def forecast(tasks: Path, *overrides: str) -> Forecast:
    words = [
        f"data.train={tasks}",
        "trainer.policy.model.path=m",
        "trainer.train_batch_size=2",
        "trainer.epochs=2",
        "generator.n_samples_per_prompt=3",
        "generator.max_turns=4",
        "generator.max_input_length=1000",
        "generator.sampling_params.max_generate_length=100",
    ]
    config = load_run_config(None, [*words, *overrides])
    return Forecast.of(config, plan_run(config))


def test_rollouts_and_tokens_follow_from_the_plan(tasks: Path) -> None:
    found = forecast(tasks)
    assert (found.steps, found.evaluations, found.train_rollouts, found.eval_rollouts) == (4, 0, 24, 0)
    assert (found.sampled_tokens, found.trained_tokens) == (24 * 400, 24 * 1000)


@pytest.mark.parametrize(
    ("overrides", "evaluations"),
    [
        (["trainer.eval_before_train=true"], 1),
        (["trainer.eval_interval=2"], 2),
        (["trainer.eval_interval=2", "trainer.eval_after_train=true"], 2),
        (["trainer.eval_interval=3", "trainer.eval_after_train=true"], 2),
        (["trainer.eval_interval=10"], 0),
    ],
)
def test_evaluations_are_counted_as_the_loop_makes_them(tasks: Path, overrides: list[str], evaluations: int) -> None:
    found = forecast(tasks, *overrides, "generator.eval_n_samples_per_prompt=2")
    assert (found.evaluations, found.eval_rollouts) == (evaluations, evaluations * 5 * 2)


def test_the_context_and_the_agents_limit_bound_what_is_sampled(tasks: Path) -> None:
    assert forecast(tasks, "generator.max_turns=50").sampled_tokens == 24 * 1000
    assert forecast(tasks, "agent.max_sampled_tokens=70").sampled_tokens == 24 * 70


def test_time_and_usage_grow_with_the_rollouts(tasks: Path) -> None:
    measured = Measured.of(RECORDS)
    assert measured is not None
    assert (measured.rollouts, measured.train_rollout_s, measured.eval_rollout_s) == (10, 5.0, 2.0)
    found = forecast(tasks, "trainer.eval_before_train=true")
    assert measured.seconds_of(found) == 24 * 5 + 5 * 2
    assert measured.usage_of(found) == {"gpu_seconds": 29 * 10.0}


def test_without_an_evaluation_its_rollouts_take_what_sampling_took() -> None:
    measured = Measured.of(RECORDS[1:])
    assert measured is not None
    assert measured.eval_rollout_s == 2.0
    assert Measured.of(RECORDS[:1]) is None
    assert Measured.of([]) is None
