"""What a step trains on: oversampling, quorum and dynamic filtering, with groups kept whole."""

import asyncio
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from builders.tasks import write_task
from builders.trajectories import trajectory
from rich.console import Console

from drydock.report.progress import RunProgress
from drydock.rollout.outcome import Outcome
from drydock.rollout.pool import RolloutPool
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.training.config_file import load_run_config
from drydock.training.plan import plan_run
from drydock.training.rollout_batch import RolloutBatches
from drydock.training.run_folder import RunFolder
from drydock.training.spare_tasks import SpareTasks
from drydock.training.step_rollouts import StepCollector
from drydock.training.task_memory import TaskMemory

DIFFERENT: Callable[[RolloutSpec], float | None] = lambda spec: float(spec.repetition)  # noqa: E731


class SlowPool:
    """Rollouts that end with `reward_of(spec)`; those of tasks in `hanging` never end by themselves."""

    def __init__(self, reward_of: Callable[[RolloutSpec], float | None] = DIFFERENT) -> None:
        self.reward_of = reward_of
        self.hanging: set[str] = set()
        self.begun: list[str] = []

    async def run(self, specs: Sequence[RolloutSpec], *, out_dir: Path | None, on_done: Any, **_: Any) -> list[Any]:
        self.begun.append(specs[0].task)
        return await asyncio.gather(*(self._one(spec, out_dir, on_done) for spec in specs))

    async def _one(self, spec: RolloutSpec, out_dir: Path | None, on_done: Any) -> Trajectory:
        reward = self.reward_of(spec)
        outcome = Outcome.TURNS_EXHAUSTED if reward is None else Outcome.GRADED
        made = trajectory(spec.task, reward, repetition=spec.repetition, outcome=outcome)
        made = made.model_copy(update={"step": spec.step, "rollout_id": spec.rollout_id})
        try:
            if spec.task in self.hanging and spec.repetition:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            gone = made.model_copy(update={"reward": None, "outcome": Outcome.CANCELLED})
            if out_dir is not None:
                gone.write(out_dir)
            raise
        on_done(made)
        return made


def collector(tmp_path: Path, pool: SlowPool, *overrides: str, tasks: int = 6) -> StepCollector:
    for number in range(tasks):
        write_task(tmp_path / "tasks" / f"t{number}")
    config = load_run_config(
        None,
        [
            f"data.train={tmp_path}/tasks",
            "trainer.policy.model.path=some/model",
            "trainer.train_batch_size=2",
            "generator.n_samples_per_prompt=2",
            "data.shuffle=false",
            *overrides,
        ],
    )
    plan = plan_run(config)
    folder = RunFolder(tmp_path / "run", "run")
    return StepCollector(
        config=config,
        plan=plan,
        pool=cast("RolloutPool", pool),
        batches=RolloutBatches(config, folder),
        memory=TaskMemory(2),
        spare=SpareTasks(plan.train_tasks, 0),
        progress=RunProgress(Console(file=io.StringIO())),
    )


def names(found: Any) -> list[str]:
    return [task.name for task in found.tasks]


async def test_a_step_is_what_the_plan_dealt(tmp_path: Path) -> None:
    pool = SlowPool()
    found = await collector(tmp_path, pool).collect(2)
    assert names(found) == pool.begun == ["t2", "t3"]
    assert [one.task for one in found.trajectories] == ["t2", "t2", "t3", "t3"]
    assert (found.cut, found.filtered) == ([], [])


async def test_an_oversampled_step_goes_on_with_whole_groups_and_the_others_come_again(tmp_path: Path) -> None:
    pool = SlowPool()
    pool.hanging = {"t1"}
    collect = collector(tmp_path, pool, "generator.oversample_share=1.0")
    found = await collect.collect(1)
    assert len(pool.begun) == 4
    assert "t1" in found.cut
    assert len(names(found)) >= 2
    assert "t1" not in [one.task for one in found.trajectories]
    assert all(names(found).count(name) == 1 for name in names(found))
    assert [task.name for task in collect.spare.take(len(found.cut), ())] == found.cut
    left = sorted(path.name for path in (tmp_path / "run/trajectories/step_1/train").iterdir())
    assert "t1_0.json" in left
    assert "t1_1.error" in left


async def test_with_a_quorum_a_straggler_does_not_hold_the_step(tmp_path: Path) -> None:
    pool = SlowPool()
    pool.hanging = {"t0"}
    found = await collector(tmp_path, pool, "generator.quorum=0.5").collect(1)
    assert names(found) == ["t1"]
    assert found.cut == ["t0"]


async def test_a_group_that_failed_does_not_count_towards_the_quorum(tmp_path: Path) -> None:
    pool = SlowPool(lambda spec: None if spec.task == "t0" else float(spec.repetition))
    found = await collector(tmp_path, pool, "generator.quorum=0.5").collect(1)
    assert names(found) == ["t0", "t1"]
    assert found.cut == []


async def test_groups_without_signal_are_replaced_by_other_tasks(tmp_path: Path) -> None:
    pool = SlowPool(lambda spec: 1.0 if spec.task in ("t0", "t1") else float(spec.repetition))
    found = await collector(tmp_path, pool, "trainer.algorithm.dynamic_filtering=true").collect(1)
    assert found.filtered == ["t0", "t1"]
    assert len(names(found)) == 2
    assert not {"t0", "t1"} & set(names(found))
    assert {one.task for one in found.trajectories} == {"t0", "t1", *names(found)}


async def test_filling_up_ends_and_what_has_no_signal_is_said(tmp_path: Path) -> None:
    pool = SlowPool(lambda _: 1.0)
    found = await collector(
        tmp_path, pool, "trainer.algorithm.dynamic_filtering=true", "generator.refill_rounds=1"
    ).collect(1)
    assert len(pool.begun) == 4
    assert len(found.trajectories) == 8
    # nothing carries signal: the step is there all the same, and changes nothing
    assert len(names(found)) == 4


async def test_filling_up_where_nothing_is_graded_keeps_what_there_is(tmp_path: Path) -> None:
    def reward(spec: RolloutSpec) -> float | None:
        return {"t0": 1.0, "t1": float(spec.repetition)}.get(spec.task)

    found = await collector(tmp_path, SlowPool(reward), "trainer.algorithm.dynamic_filtering=true").collect(1)
    assert names(found) == ["t1"]


@pytest.mark.parametrize("overrides", [(), ("generator.quorum=0.5",)])
async def test_a_cancelled_step_writes_what_was_done(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    pool = SlowPool()
    pool.hanging = {"t0", "t1"}
    collect = collector(tmp_path, pool, *overrides)
    running = asyncio.create_task(collect.collect(1))
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    left = sorted(path.name for path in (tmp_path / "run/trajectories/step_1/train").iterdir())
    assert [name for name in left if name.endswith(".json")] == ["t0_0.json", "t1_0.json"]
