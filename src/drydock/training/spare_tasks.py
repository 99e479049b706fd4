"""Tasks beyond those that a step was dealt: for oversampling, and in the place of groups without signal.

They come in passes over the whole training set, in an order of their own. A task whose group was cut off comes back
first, so that tasks that take long are not left out of training for good.
"""

import random
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from drydock.training.task_set import Task


@dataclass(slots=True)
class SpareTasks:
    """An endless, seeded supply; the order is a function of `seed` and of what was taken and given back.

    passes, queue: how many passes were begun, and what is left of the present one.
    """

    tasks: Sequence[Task]
    seed: int
    passes: int = 0
    queue: deque[Task] = field(default_factory=deque)

    def take(self, count: int, without: Collection[str]) -> list[Task]:
        """Up to `count` distinct tasks, none of them named in `without`; fewer only when there are no others."""
        allowed = {task.name for task in self.tasks} - set(without)
        taken: list[Task] = []
        skipped: list[Task] = []
        while len(taken) < min(count, len(allowed)):
            if not self.queue:
                self._begin_pass()
            task = self.queue.popleft()
            fits = task.name in allowed and task not in taken
            (taken if fits else skipped).append(task)
        self.queue.extendleft(reversed(skipped))
        return taken

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Put tasks first that were dealt but not trained."""
        for task in reversed(tasks):
            if task in self.queue:
                self.queue.remove(task)
            self.queue.appendleft(task)

    def _begin_pass(self) -> None:
        order = list(self.tasks)
        random.Random(f"{self.seed}/spare/{self.passes}").shuffle(order)
        self.passes += 1
        self.queue.extend(order)
