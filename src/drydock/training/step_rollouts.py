"""Everything that a step trains on: its tasks' groups, further ones for those that were cut off or carry no signal.

    batch of the plan (+ oversampled tasks) -> rollouts -> second chances -> groups
    dynamic filtering: groups in which all rewards are equal are set aside and others are run in their place

Oversampling (`generator.oversample_share`): more groups are started than the step needs, and it goes on with those that
are complete first. Quorum (`generator.quorum`): it goes on when that share of its groups is complete. Both keep groups
whole, so a group's baseline is never that of its quick rollouts; the tasks that were cut off come first among the next
further ones. Dynamic filtering is DAPO's (arXiv 2503.14476, section 3.2).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drydock.report.progress import RunProgress
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.trajectory import Trajectory
from drydock.training.causes import dominant_cause
from drydock.training.config import RunConfig
from drydock.training.group_rollouts import Collected, NoGradedRollout, by_task, collect_rollouts, has_signal
from drydock.training.plan import RunPlan
from drydock.training.rollout_batch import RolloutBatches
from drydock.training.spare_tasks import SpareTasks
from drydock.training.task_memory import TaskMemory
from drydock.training.task_set import Task


@dataclass(frozen=True, slots=True)
class StepRollouts:
    """tasks: whose groups are trained, in order. trajectories: those of the step, of filtered groups too.

    filtered: tasks whose group carried no signal and is not trained. cut: tasks whose group was not waited for.
    seconds: from the first sandbox to the last verifier.
    """

    tasks: list[Task]
    trajectories: list[Trajectory]
    groups_retried: int = 0
    replaced: int = 0
    filtered: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class StepCollector:
    """Collects the rollouts of steps; several steps may be under way at the same time.

    told: dropped tasks of which the user was told.
    """

    config: RunConfig
    plan: RunPlan
    pool: RolloutRunner
    batches: RolloutBatches
    memory: TaskMemory
    spare: SpareTasks
    progress: RunProgress
    told: set[str] = field(default_factory=set)

    async def collect(self, step: int) -> StepRollouts:
        """The rollouts of `step`, and how long they took; see `_collect`."""
        started = time.monotonic()
        found = await self._collect(step)
        return replace(found, seconds=time.monotonic() - started)

    async def _collect(self, step: int) -> StepRollouts:
        """The rollouts of `step`. No tasks where all of the step's were dropped as broken.

        Raises NoGradedRollout when nothing was graded, attempt after attempt, or no task is left.
        """
        planned = self.memory.still_used(self.plan.batches[step - 1])
        if not self.memory.still_used(self.plan.train_tasks):
            raise NoGradedRollout(
                f"every task of data.train was dropped as broken; see {self.batches.folder.dropped_tasks}"
            )
        if not planned:
            return StepRollouts([], [])
        generator = self.config.generator
        extra = self._further(math.ceil(generator.oversample_share * len(planned)), planned)
        found = await self._round(step, [*planned, *extra], math.ceil(generator.quorum * len(planned)), 0)
        if not self.config.trainer.algorithm.dynamic_filtering:
            return found
        for number in range(1, generator.refill_rounds + 1):
            kept = [task for task in found.tasks if task.name not in found.filtered]
            fresh = self._further(len(planned) - len(kept), [*found.tasks, *planned, *extra])
            if not fresh:
                break
            try:
                found = _joined(found, await self._round(step, fresh, len(fresh), number))
            except NoGradedRollout as nothing:
                self.progress.note(f"step {step}: no group to fill up with: {nothing}")
                break
        kept = [task for task in found.tasks if task.name not in found.filtered]
        return replace(found, tasks=kept) if kept else replace(found, filtered=[])

    def _further(self, count: int, without: Sequence[Task]) -> list[Task]:
        named = {task.name for task in without} | set(self.memory.dropped)
        return self.spare.take(count, named) if count > 0 else []

    async def _round(self, step: int, tasks: Sequence[Task], wanted: int, number: int) -> StepRollouts:
        """One round of groups; the first is round 0, later ones fill up."""
        replaced, cut = 0, list[str]()
        group = self.config.generator.n_samples_per_prompt
        filling = f", filling up {number}" if number else ""

        async def rollouts(tasks: Sequence[Task], step: int, attempt: int) -> list[Trajectory]:
            nonlocal replaced, cut
            again = f", attempt {attempt + 1}" if attempt else ""
            label = f"step {step} of {self.plan.steps}{filling}{again}: rollouts"
            with self.progress.counted(label, len(tasks) * group) as counter:
                groups = self.batches.groups(tasks, step, "train", group, attempt)
                result = await self.batches.run(self.pool, groups, counter.advance, wanted if not attempt else None)
            replaced += len(result.replaced)
            cut += result.cut
            if all(trajectory.masked for trajectory in result.trajectories):
                cause = dominant_cause(result.trajectories)
                self.progress.note(f"step {step}, attempt {attempt + 1}: no rollout was graded: {cause}")
            return result.trajectories

        try:
            collected = await collect_rollouts(tasks, step, self.config, rollouts, self.memory)
        finally:
            self.spare.give_back([task for task in tasks if task.name in cut])
            self._note_dropped(step)
        whole = [task for task in tasks if task.name not in cut]
        return StepRollouts(
            whole, collected.trajectories, collected.groups_retried, replaced, _without_signal(collected), cut
        )

    def _note_dropped(self, step: int) -> None:
        for gone in self.memory.dropped.values():
            if gone.step == step and gone.task not in self.told:
                self.told.add(gone.task)
                self.progress.note(f"task {gone.task} is dropped as broken: {gone.cause}; see {gone.path}")


def _without_signal(collected: Collected) -> list[str]:
    return [task for task, group in by_task(collected.trajectories).items() if not has_signal(group)]


def _joined(first: StepRollouts, more: StepRollouts) -> StepRollouts:
    return StepRollouts(
        [*first.tasks, *more.tasks],
        [*first.trajectories, *more.trajectories],
        first.groups_retried + more.groups_retried,
        first.replaced + more.replaced,
        [*first.filtered, *more.filtered],
        [*first.cut, *more.cut],
    )
