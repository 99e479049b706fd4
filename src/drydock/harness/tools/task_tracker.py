"""The `task_tracker` tool: the agent's own to-do list, kept for the length of one rollout."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from drydock.harness.sdk import Action
from drydock.harness.tools.base import DriverTool, TextExecutor, TextObservation

MARKS = {"todo": " ", "in_progress": ">", "done": "x"}


class TrackedTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str
    notes: str = ""
    status: Literal["todo", "in_progress", "done"] = "todo"


class TrackTasksAction(Action):
    command: Literal["view", "plan"] = "view"
    task_list: list[TrackedTask] = Field(default_factory=list)


class TrackTasksExecutor(TextExecutor[TrackTasksAction]):
    def __init__(self) -> None:
        self._tasks: list[TrackedTask] = []

    async def answer(self, action: TrackTasksAction) -> str:
        if action.command == "plan":
            self._tasks = list(action.task_list)
        return render_tasks(self._tasks)


class TrackTasksTool(DriverTool[TrackTasksAction, TextObservation]):
    name: ClassVar[str] = "task_tracker"

    @classmethod
    def fresh(cls) -> "TrackTasksTool":
        return cls.of(cls.name, TrackTasksAction, TextObservation, TrackTasksExecutor())


def render_tasks(tasks: list[TrackedTask]) -> str:
    if not tasks:
        return "the task list is empty"
    lines = []
    for number, task in enumerate(tasks, 1):
        notes = f" ({task.notes})" if task.notes else ""
        lines.append(f"{number}. [{MARKS[task.status]}] {task.title}{notes}")
    return "\n".join(lines)
