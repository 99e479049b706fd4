"""The rollouts of a batch of tasks: what they are named, where they are written, how many may be replaced."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drydock.rollout.replacement import Replacements
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.training.config import RunConfig
from drydock.training.group_rollouts import is_graded
from drydock.training.run_folder import RunFolder, Split
from drydock.training.task_set import Task

Group = list[RolloutSpec]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """trajectories: of whole groups, in the order of their tasks. replaced: rollouts that fresh ones took over from.

    cut: tasks whose group was not waited for.
    """

    trajectories: list[Trajectory]
    replaced: list[Trajectory]
    cut: list[str]


@dataclass(frozen=True, slots=True)
class RolloutBatches:
    """Runs batches of rollouts for one run and writes what comes of them."""

    config: RunConfig
    folder: RunFolder

    def groups(self, tasks: Sequence[Task], step: int, split: Split, samples: int, attempt: int = 0) -> list[Group]:
        """`samples` rollouts of each task. Their ids hold the run, the step and the attempt: none is used twice."""
        prefix = f"{self.config.trainer.run_name}-{split}-{step}" + (f"-try{attempt}" if attempt else "")
        return [
            [
                RolloutSpec(
                    task=task.name,
                    task_path=task.path,
                    rollout_id=f"{prefix}-{task.name}-{repetition}",
                    step=step,
                    split=split,
                    repetition=repetition,
                )
                for repetition in range(samples)
            ]
            for task in tasks
        ]

    async def run(
        self, pool: RolloutRunner, groups: Sequence[Group], advance: Callable[[], None], wanted: int | None = None
    ) -> BatchResult:
        """Run `groups` side by side, until all of them are over or `wanted` have ended with a graded rollout.

        Groups are taken whole or not at all: those that are still under way then are cancelled, and what they did is
        written down. What else nothing more comes of is written at once too: rollouts without a reward, and all of them
        when this is cancelled. advance: called with each rollout that is over.
        """
        budget = math.ceil(self.config.generator.replacement_share * sum(map(len, groups)))
        fresh = Replacements(budget, self.config.generator.replacements_per_rollout)
        done: dict[str, list[Trajectory]] = {}

        def note(trajectory: Trajectory) -> None:
            done.setdefault(trajectory.task, []).append(trajectory)
            advance()

        async def run_group(group: Group) -> list[Trajectory]:
            split = group[0].split
            out_dir = self.folder.trajectories(group[0].step, split) if cuts else None
            return await pool.run(group, out_dir=out_dir, on_done=note, replacements=fresh)

        cuts = wanted is not None and wanted < len(groups)
        tasks = [asyncio.create_task(run_group(group), name=f"group {group[0].task}") for group in groups]
        whole: list[Trajectory] = []
        try:
            await _enough(tasks, len(groups) if wanted is None else wanted)
            whole = [one for task in tasks if task.done() and not task.cancelled() for one in task.result()]
        finally:
            await _stop(tasks)
            kept = {trajectory.rollout_id for trajectory in whole}
            lost = [one for group in done.values() for one in group if one.masked or one.rollout_id not in kept]
            self.write([*fresh.replaced, *lost])
        taken = {trajectory.task for trajectory in whole}
        cut = [group for group in groups if group[0].task not in taken]
        for spec in (spec for group in cut for spec in group):
            self.folder.turn_log(spec.rollout_id).unlink(missing_ok=True)
        return BatchResult(whole, list(fresh.replaced), [group[0].task for group in cut])

    def write(self, trajectories: Sequence[Trajectory]) -> None:
        """Write trajectories into the run's folder; their turn logs are no longer needed."""
        for trajectory in trajectories:
            trajectory.write(self.folder.trajectories(trajectory.step, trajectory.split))
            self.folder.turn_log(trajectory.rollout_id).unlink(missing_ok=True)


async def _enough(tasks: Sequence[asyncio.Task[list[Trajectory]]], wanted: int) -> None:
    """Wait until all tasks are over, or `wanted` of them with a graded rollout. Raises the first task's error."""
    pending = set(tasks)
    graded = 0
    while pending and graded < wanted:
        over, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        graded += sum(is_graded(task.result()) for task in over)


async def _stop(tasks: Sequence[asyncio.Task[list[Trajectory]]]) -> None:
    """Cancel what still runs, and wait until its sandboxes are gone."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
