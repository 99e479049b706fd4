"""The `task_tracker` tool: the agent's own to-do list, kept for the length of one rollout."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from drydock.harness.sdk import Action, Observation
from drydock.harness.tools.base import DriverExecutor, DriverTool, description_of

MARKS = {"todo": " ", "in_progress": ">", "done": "x"}


class TrackedTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str
    notes: str = ""
    status: Literal["todo", "in_progress", "done"] = "todo"


class TrackTasksAction(Action):
    command: Literal["view", "plan"] = "view"
    task_list: list[TrackedTask] = Field(default_factory=list)


class TrackTasksObservation(Observation):
    pass


class TrackTasksExecutor(DriverExecutor[TrackTasksAction, TrackTasksObservation]):
    def __init__(self) -> None:
        self._tasks: list[TrackedTask] = []

    async def run(self, action: TrackTasksAction) -> TrackTasksObservation:
        if action.command == "plan":
            self._tasks = list(action.task_list)
        return TrackTasksObservation.from_text(render_tasks(self._tasks))


class TrackTasksTool(DriverTool[TrackTasksAction, TrackTasksObservation]):
    name: ClassVar[str] = "task_tracker"

    @classmethod
    def fresh(cls) -> "TrackTasksTool":
        return cls(
            description=description_of(cls.name),
            action_type=TrackTasksAction,
            observation_type=TrackTasksObservation,
            executor=TrackTasksExecutor(),
        )


def render_tasks(tasks: list[TrackedTask]) -> str:
    if not tasks:
        return "the task list is empty"
    lines = []
    for number, task in enumerate(tasks, 1):
        notes = f" ({task.notes})" if task.notes else ""
        lines.append(f"{number}. [{MARKS[task.status]}] {task.title}{notes}")
    return "\n".join(lines)
