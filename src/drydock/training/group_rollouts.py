"""The rollouts of a step, group after group, with second chances for those that broke.

From the inside out: a single rollout that broke is replaced by the pool (`rollout.replacement`), within the budget of
the step. A group of which nothing was graded, not only by the policy's doing, is run again as a whole while others were
graded. A step of which nothing at all was graded is run again as a whole; then the run stops.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from drydock.amount import amount
from drydock.errors import DrydockError
from drydock.rollout.trajectory import Trajectory
from drydock.training.causes import broke, dominant_cause
from drydock.training.config import RunConfig
from drydock.training.task_memory import DroppedTask, TaskMemory
from drydock.training.task_set import Task

log = logging.getLogger(__name__)

Rollouts = Callable[[Sequence[Task], int, int], Awaitable[list[Trajectory]]]
"""(tasks, step, attempt) to the trajectories of their rollouts, group after group; a group that was cut off is left
out."""


class NoGradedRollout(DrydockError):
    """Every rollout of a step failed, attempt after attempt."""


@dataclass(frozen=True, slots=True)
class Collected:
    """trajectories: of every task but those cut off, group after group; those of a dropped task have no reward.

    groups_retried: groups that were run again. dropped: tasks that were found broken.
    """

    trajectories: list[Trajectory]
    groups_retried: int
    dropped: list[DroppedTask]


async def collect_rollouts(
    tasks: Sequence[Task], step: int, config: RunConfig, rollouts: Rollouts, memory: TaskMemory
) -> Collected:
    """The step's trajectories.

    Raises NoGradedRollout, naming the dominant cause, when nothing was graded and the retries are used up or every
    task has been dropped.
    """
    trainer = config.trainer
    groups: dict[str, list[Trajectory]] = {}
    dropped: list[DroppedTask] = []
    waiting = list(tasks)
    retried = 0
    attempt = -1
    while waiting:
        attempt += 1
        retried += len(waiting) if attempt else 0
        ran = by_task(await rollouts(waiting, step, attempt))
        groups |= ran
        dropped += memory.note(list(ran.values()), others_graded=_any_graded(groups.values()))
        left = memory.still_used(tasks)
        cause = dominant_cause([one for group in groups.values() for one in group])
        if _any_graded(groups.get(task.name, []) for task in left):
            again = [task for task in memory.still_used(waiting) if _may_be_graded(groups.get(task.name, []))]
            waiting = again if attempt < trainer.group_retries else []
        else:
            log.warning("step %d, attempt %d: no rollout was graded: %s", step, attempt + 1, cause)
            if attempt >= trainer.step_retries or not left:
                raise NoGradedRollout(_nothing_graded(step, attempt + 1, cause, dropped))
            waiting = left
    kept = [one for task in tasks for one in groups.get(task.name, [])]
    return Collected(kept, retried, dropped)


def by_task(trajectories: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """The groups: the rollouts of each task, in the order in which tasks first appear."""
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.task, []).append(trajectory)
    return groups


def is_graded(group: Sequence[Trajectory]) -> bool:
    """Whether any rollout of the group has a reward."""
    return any(not one.masked for one in group)


def has_signal(group: Sequence[Trajectory]) -> bool:
    """Whether the group's rewards differ, without which all advantages are 0."""
    return len({one.reward for one in group if one.reward is not None}) > 1


def _any_graded(groups: Iterable[Sequence[Trajectory]]) -> bool:
    return any(is_graded(group) for group in groups)


def _may_be_graded(group: Sequence[Trajectory]) -> bool:
    """Whether nothing of the group was graded and something of it broke, which may be otherwise the next time."""
    return not is_graded(group) and any(map(broke, group))


def _nothing_graded(step: int, attempts: int, cause: str, dropped: Sequence[DroppedTask]) -> str:
    gone = f"; dropped as broken: {', '.join(one.task for one in dropped)}" if dropped else ""
    return f"step {step}: none of its rollouts was graded in {amount(attempts, 'attempt')}; most often: {cause}{gone}"
