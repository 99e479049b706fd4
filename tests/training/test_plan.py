"""What a run settles and warns of before anything is created."""

from pathlib import Path

import pytest

from drydock.errors import ConfigError
from drydock.recipes.shell_tasks.task import Kind, ShellTask
from drydock.recipes.shell_tasks.task_folder import write_task_folder
from drydock.training.config_file import load_run_config
from drydock.training.plan import RunPlan, plan_run


def plan(folder: Path, *overrides: str) -> RunPlan:
    defaults = [f"data.train={folder}", "trainer.policy.model.path=m", "trainer.train_batch_size=2"]
    return plan_run(load_run_config(None, [*defaults, *overrides]))


@pytest.fixture
def five_tasks(tmp_path: Path) -> Path:
    for number in range(5):
        write_task_folder(ShellTask(f"t{number}", Kind.WRITE, "Write a to b.", {}, "b", "a"), tmp_path / "train")
    return tmp_path / "train"


def test_one_pass_by_default(five_tasks: Path) -> None:
    settled = plan(five_tasks)
    assert settled.steps == 2
    assert settled.warnings == ()


def test_more_steps_than_a_pass_are_said_and_cut(five_tasks: Path) -> None:
    settled = plan(five_tasks, "trainer.max_training_steps=9")
    assert settled.steps == 2
    assert "9" in settled.warnings[0]
    assert "trainer.epochs" in settled.warnings[0]
    assert plan(five_tasks, "trainer.max_training_steps=5", "trainer.epochs=3").steps == 5


def test_evaluating_on_the_training_tasks_warns(five_tasks: Path) -> None:
    assert "same tasks" in plan(five_tasks, f"data.eval={five_tasks}", "trainer.eval_before_train=true").warnings[0]
    fallback = plan(five_tasks, "trainer.eval_interval=1")
    assert "data.eval is not set" in fallback.warnings[0]
    assert fallback.eval_tasks == fallback.train_tasks


def test_a_batch_larger_than_the_task_set_is_refused(five_tasks: Path) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.train_batch_size is 6, but data\.train holds only 5"):
        plan(five_tasks, "trainer.train_batch_size=6")
