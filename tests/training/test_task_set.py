"""Task directories: found, checked, dealt out."""

from pathlib import Path

import pytest

from drydock.errors import ConfigError
from drydock.recipes.shell_tasks.task import Kind, ShellTask
from drydock.recipes.shell_tasks.task_folder import write_task_folder
from drydock.training.task_set import Task, deal_batches, find_tasks, steps_available


def write(parent: Path, name: str) -> Path:
    return write_task_folder(ShellTask(name, Kind.WRITE, "Write a to b.", {}, "b", "a"), parent)


def test_a_directory_of_tasks_and_a_single_task_are_both_sources(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "many", name)
    single = write(tmp_path / "few", "three")
    tasks = find_tasks([tmp_path / "many", single], "data.train")
    assert sorted(task.name for task in tasks) == ["one", "three", "two"]


def test_equal_names_are_told_apart_and_equal_paths_counted_once(tmp_path: Path) -> None:
    write(tmp_path / "a", "same")
    write(tmp_path / "b", "same")
    tasks = find_tasks([tmp_path / "a", tmp_path / "b", tmp_path / "a"], "data.train")
    assert [task.name for task in tasks] == ["same", "same~2"]


@pytest.mark.parametrize("missing", ["instruction.md", "task.toml", "tests/test.sh"])
def test_an_incomplete_task_is_refused_by_what_it_lacks(tmp_path: Path, missing: str) -> None:
    (write(tmp_path, "broken") / missing).unlink()
    with pytest.raises(ConfigError, match=f"broken has no {missing}"):
        find_tasks([tmp_path], "data.train")


def test_missing_and_empty_directories_are_refused_by_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.eval: no such task directory"):
        find_tasks([tmp_path / "nowhere"], "data.eval")
    with pytest.raises(ConfigError, match=r"data\.train: no Harbor task in"):
        find_tasks([tmp_path], "data.train")


def test_a_pass_deals_each_task_at_most_once_and_epochs_differ() -> None:
    tasks = [Task(str(number), Path(str(number))) for number in range(10)]
    batches = list(deal_batches(tasks, batch_size=3, epochs=2, shuffle=True, seed=4))
    assert len(batches) == steps_available(10, 3, 2) == 6
    first, second = batches[:3], batches[3:]
    for epoch in (first, second):
        names = [task.name for batch in epoch for task in batch]
        assert len(set(names)) == len(names) == 9
    assert first != second
    assert batches == list(deal_batches(tasks, batch_size=3, epochs=2, shuffle=True, seed=4))
    assert batches != list(deal_batches(tasks, batch_size=3, epochs=2, shuffle=True, seed=5))


def test_a_malformed_task_toml_is_refused_by_name_wherever_it_stands(tmp_path: Path) -> None:
    write(tmp_path, "first")
    (write(tmp_path, "second") / "task.toml").write_text("[environment")
    with pytest.raises(ConfigError, match=r"data\.train: .*second/task\.toml cannot be read"):
        find_tasks([tmp_path], "data.train")
