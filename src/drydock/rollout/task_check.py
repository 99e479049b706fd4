"""Whether a task can be trained on: its own solution earns the full reward, doing nothing earns the baseline, and both
do so every time.

Each is a whole trial in a fresh sandbox, as in training: Harbor's `oracle` agent carries out `solution/`, its `nop`
agent does nothing (or one that starts the task's MCP servers and does nothing else), and the verifier grades. One `nop`
goes first, so that a sandbox that cannot be built fails once and not `2 * runs` times. A task says in `[metadata]` of
its task.toml what is full (`full_reward`, 1 by default) and what doing nothing earns (`baseline_reward`, 0 by default).

What it cannot tell: whether another right solution would pass, or a wrong one fail.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from drydock.errors import UserError, VerifierError
from drydock.rollout import task_fault
from drydock.rollout.preflight import NOP, error_of_trial, idle_agent
from drydock.rollout.reward import read_reward
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.task_fault import Fault, Graded
from drydock.rollout.task_folder import flaws_of, has_solution, stated_reward
from drydock.rollout.trial import run_trial

SOLVE = "oracle"
"""Harbor's agent that carries out the task's solution."""

_SHOWN_CHARS = 1_500
_DOING = {NOP: "doing nothing", SOLVE: "carrying out the solution"}


class TaskCheck(BaseModel):
    """What was found of one task.

    solution, nothing: the rewards of the runs of each agent, in order.
    timings: seconds. `build_s`: the first sandbox to start, its image included where it was not cached. Of the other
    runs the means: `sandbox_s` (to start), `solve_s`, `verifier_s`.
    """

    task: str
    path: str
    faults: list[Fault] = []
    full_reward: float = 1.0
    baseline_reward: float = 0.0
    solution: list[float] = []
    nothing: list[float] = []
    timings: dict[str, float] = {}

    @property
    def ok(self) -> bool:
        return not self.faults


OnDone = Callable[[TaskCheck], None]


async def check_tasks(
    folders: Sequence[Path],
    settings: RolloutSettings,
    *,
    runs: int = 3,
    concurrency: int = 1,
    on_done: OnDone | None = None,
) -> list[TaskCheck]:
    """Check tasks, with at most `concurrency` sandboxes at a time; the results are in the order of `folders`.

    Raises UserError when the settings or this machine, and no task, are at fault.
    """
    slots = asyncio.Semaphore(concurrency)

    async def check(folder: Path) -> TaskCheck:
        result = await _check(folder, runs, runner)
        if on_done is not None:
            on_done(result)
        return result

    with tempfile.TemporaryDirectory(prefix="drydock-check-") as work_dir:
        kept = {"work_dir": Path(work_dir), "keep_trials": "always", "agent_kwargs": {}}
        runner = _Runner(settings.model_copy(update=kept), Path(work_dir), slots)
        try:
            async with asyncio.TaskGroup() as group:
                checks = [group.create_task(check(folder)) for folder in folders]
        except* UserError as errors:
            raise _first(errors) from None
    return [check.result() for check in checks]


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs trials in the slots that all checks share."""

    settings: RolloutSettings
    work_dir: Path
    slots: asyncio.Semaphore

    async def run(self, folder: Path, agent: str, number: int) -> Graded | Fault:
        """Raises UserError when no task is at fault."""
        spec = RolloutSpec(task=folder.name, task_path=folder, step=0, split="train", repetition=number)
        trial_dir = self.work_dir / spec.rollout_id
        async with self.slots:
            chosen = idle_agent(folder) if agent == NOP else agent
            end = await run_trial(spec, self.settings.model_copy(update={"agent": chosen}))
            printed = await asyncio.to_thread(_printed, trial_dir)
            await asyncio.to_thread(shutil.rmtree, trial_dir, True)
        if end.failure is not None:
            error = error_of_trial(folder, end)
            if isinstance(error, UserError):
                raise error
            return task_fault.of_error(error, _DOING[agent], end.failure.name)
        reward, problem = read_reward(end.rewards, self.settings.reward)
        if reward is None:
            return task_fault.of_error(VerifierError(f"{folder}: {problem}{printed}"), _DOING[agent])
        return Graded(reward, end.timings, printed)


async def _check(folder: Path, runs: int, runner: _Runner) -> TaskCheck:
    result = TaskCheck(task=folder.name, path=str(folder))
    result.faults = [task_fault.of_file(flaw) for flaw in await asyncio.to_thread(flaws_of, folder)]
    if result.faults:
        return result
    result.full_reward = stated_reward(folder, "full_reward", 1.0)
    result.baseline_reward = stated_reward(folder, "baseline_reward", 0.0)
    nothing, solution = await _runs(folder, runs, runner, result)
    result.nothing = [run.reward for run in nothing]
    result.solution = [run.reward for run in solution]
    result.timings = _timings(nothing, solution)
    result.faults += task_fault.of_rewards(
        nothing=nothing, solution=solution, baseline=result.baseline_reward, full=result.full_reward
    )
    return result


async def _runs(folder: Path, runs: int, runner: _Runner, result: TaskCheck) -> tuple[list[Graded], list[Graded]]:
    """The graded runs of doing nothing and of the solution; why there are not all of them is added to the faults."""
    solvable = has_solution(folder)
    if not solvable:
        result.faults.append(task_fault.no_solution(str(folder)))
    first = await runner.run(folder, NOP, 0)
    if isinstance(first, Fault):
        result.faults.append(first)
        return [], []
    agents = [NOP] * (runs - 1) + [SOLVE] * (runs if solvable else 0)
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(runner.run(folder, agent, n)) for n, agent in enumerate(agents, start=1)]
    ends: list[tuple[str, Graded | Fault]] = [
        (NOP, first),
        *((agent, one.result()) for agent, one in zip(agents, others, strict=True)),
    ]
    for _, end in ends:
        if isinstance(end, Fault) and end not in result.faults:
            result.faults.append(end)
    nothing, solution = (
        [end for agent, end in ends if agent == wanted and isinstance(end, Graded)] for wanted in (NOP, SOLVE)
    )
    return nothing, solution


def _timings(nothing: Sequence[Graded], solution: Sequence[Graded]) -> dict[str, float]:
    later = [*nothing[1:], *solution]
    parts = {
        "build_s": [run.timings.get("sandbox_s") for run in nothing[:1]],
        "sandbox_s": [run.timings.get("sandbox_s") for run in later],
        "solve_s": [run.timings.get("agent_s") for run in solution],
        "verifier_s": [run.timings.get("verifier_s") for run in later],
    }
    known = {name: [value for value in values if value is not None] for name, values in parts.items()}
    return {name: round(sum(values) / len(values), 4) for name, values in known.items() if values}


def _printed(trial_dir: Path) -> str:
    """What the solution (with its exit code) and the verifier printed, the end of each; of every step."""
    shown = ""
    for pattern, title in (("oracle.txt", "solution/solve.sh"), ("test-stdout.txt", "tests/test.sh")):
        for file in sorted(trial_dir.rglob(pattern)):
            text = file.read_text(encoding="utf-8", errors="replace")[-_SHOWN_CHARS:].strip()
            status = file.with_name("exit-code.txt")
            ended = f" (exit code {status.read_text().strip()})" if status.is_file() else ""
            if text or ended:
                shown += f"\n{title}{ended} printed:\n{text or '(nothing)'}"
    return shown


def _first(group: BaseExceptionGroup[UserError]) -> UserError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
