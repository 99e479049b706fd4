"""Which training tasks have failed so often that a run goes on without them.

A task earns a strike with a group in which nothing was graded and every rollout broke, when the task is to blame for
most of them, or when other tasks of the same rollouts were graded (so that it is this task that does not work here,
whatever the cause). What the policy did, running out of turns, context or time, is never held against a task. A graded
rollout clears a task's strikes. A dropped task stays dropped; it is written down with the cause, for the user to mend.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drydock.atomic import replace_file
from drydock.errors import Blame
from drydock.rollout.trajectory import Trajectory
from drydock.training.causes import broke, dominant_cause
from drydock.training.task_set import Task


@dataclass(frozen=True, slots=True)
class DroppedTask:
    """A task that is left out from now on. step: the step whose group was the last straw."""

    task: str
    path: str
    step: int
    strikes: int
    cause: str


@dataclass(slots=True)
class TaskMemory:
    """Strikes of the tasks of a run, and those that were dropped.

    limit: strikes with which a task is dropped; 0: none ever is. file: where dropped tasks are written, one JSON
    object a line; those that it holds already are dropped from the start.
    """

    limit: int
    file: Path | None = None
    strikes: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, DroppedTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.is_file():
            lines = self.file.read_text(encoding="utf-8").splitlines()
            self.dropped = {one.task: one for one in (DroppedTask(**json.loads(line)) for line in lines)}

    def forget_after(self, step: int) -> None:
        """Take back what was dropped after `step`, of a run that goes on from there."""
        self.dropped = {name: one for name, one in self.dropped.items() if one.step <= step}
        if self.file is not None and self.file.is_file():
            with replace_file(self.file) as temporary:
                temporary.write_text("".join(map(_line, self.dropped.values())), encoding="utf-8")

    def still_used(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of `tasks` that were not dropped."""
        return [task for task in tasks if task.name not in self.dropped]

    def note(self, groups: Sequence[Sequence[Trajectory]], *, others_graded: bool = False) -> list[DroppedTask]:
        """Take in groups that were run side by side, each of one task; returns the tasks that are dropped by that.

        others_graded: rollouts of other tasks were graded shortly before.
        """
        graded = {group[0].task for group in groups if any(not one.masked for one in group)}
        works = others_graded or bool(graded)
        dropped = []
        for group in groups:
            task = group[0].task
            if task in graded:
                self.strikes.pop(task, None)
            elif all(map(broke, group)) and (works or _task_is_to_blame(group)):
                self.strikes[task] = self.strikes.get(task, 0) + 1
                if 0 < self.limit <= self.strikes[task] and task not in self.dropped:
                    dropped.append(self._drop(group))
        return dropped

    def _drop(self, group: Sequence[Trajectory]) -> DroppedTask:
        one = group[0]
        gone = DroppedTask(one.task, one.task_path, one.step, self.strikes[one.task], dominant_cause(group))
        self.dropped[one.task] = gone
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(_line(gone))
        return gone


def _line(gone: DroppedTask) -> str:
    return json.dumps({name: getattr(gone, name) for name in gone.__slots__}) + "\n"


def _task_is_to_blame(group: Sequence[Trajectory]) -> bool:
    return 2 * sum(one.blame is Blame.TASK for one in group) > len(group)
