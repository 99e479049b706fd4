"""A task read once, for the many trials that a run makes of it.

For every trial Harbor parses the task's files, checks each path against ignore rules several times, and hashes the
whole directory twice. With short rollouts that is a third of the driver's work, and the answers are the same as long
as the files are. So a task is prepared once per state of its directory (names, sizes and times of all files) and
trials are made from that; a trial still gets a configuration of its own, because environments may change it.
"""

import copy
import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from harbor.models.job.lock import TrialLock
from harbor.models.task.config import StepConfig
from harbor.models.task.file_filter import TaskFileFilter
from harbor.models.task.task import Task
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import StepResult
from harbor.tasks.client import TaskDownloadResult
from harbor.trial.multi_step import MultiStepTrial
from harbor.trial.single_step import SingleStepTrial
from harbor.trial.trial import Trial
from harbor.utils.file_selection import FileSelection
from pydantic import ValidationError

from drydock.bounded_cache import BoundedCache
from drydock.errors import TaskError
from drydock.rollout.driver_variables import refuse_unless_allowed, requested_variables
from drydock.rollout.task_folder import flaws_of, is_special, unusable
from drydock.rollout.task_users import refuse_unknown_users

Stamp = tuple[tuple[str, int, int], ...]
"""Relative path, size in bytes and modification time in ns of each file of a task."""


class RememberingFilter(TaskFileFilter):
    """Harbor's ignore rules with every answer kept."""

    def __init__(self, task_dir: Path) -> None:
        super().__init__(task_dir)
        self._excluded: dict[Path, bool] = {}
        self._selected: dict[Path, FileSelection] = {}

    def is_excluded(self, path: Path) -> bool:
        answer = self._excluded.get(path)
        if answer is None:
            answer = self._excluded[path] = super().is_excluded(path)
        return answer

    def select(self, source_dir: Path) -> FileSelection:
        selection = self._selected.get(source_dir)
        if selection is None:
            selection = self._selected[source_dir] = super().select(source_dir)
        return selection


class PreparedTask(Task):
    """Harbor's task with what trials ask of it worked out in advance."""

    def __init__(self, task_dir: Path) -> None:
        super().__init__(task_dir)
        self.file_filter = RememberingFilter(self.task_dir)
        self.requests = requested_variables(self)
        self.unusable = unusable(self.paths.config_path, self.paths.config_path.read_text("utf-8"), self.config)
        self.lock: TrialLock | None = None
        self.origin: PreparedTask = self
        _ = self.checksum

    @cached_property
    def checksum(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return super().checksum

    def for_one_trial(self) -> "PreparedTask":
        """A task object that shares everything but its configuration, which environments may change."""
        task = copy.copy(self)
        task.config = self.config.model_copy(update={"environment": self.config.environment.model_copy()})
        return task


class AgentNotMade(Exception):
    """The agent refused what it was given; the cause says why. Any other failure to make a trial is the sandbox's."""


class _MadeFromPreparedTask(Trial):
    """Harbor's trial with one lock a task instead of a newly hashed one a trial, and no lock file."""

    task: PreparedTask

    def _init_agent(self) -> None:
        try:
            super()._init_agent()
        except Exception as error:
            raise AgentNotMade from error

    def _init_agent_environment(self) -> None:
        with self._refusals_named("sandbox"):
            super()._init_agent_environment()

    def _validate_network_policy_modes(self) -> None:
        with self._refusals_named("sandbox"):
            super()._validate_network_policy_modes()

    def _validate_agent_capabilities(self) -> None:
        with self._refusals_named("agent"):
            super()._validate_agent_capabilities()

    async def _setup_agent(self) -> None:
        await refuse_unknown_users(self.task, self.agent_environment)
        await super()._setup_agent()

    @contextmanager
    def _refusals_named(self, which: str) -> Iterator[None]:
        """Harbor raises ValueError when an agent or an environment cannot do what a task asks for, and RuntimeError
        for processors and systems that an environment does not have."""
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not str(error).startswith(("Task requires", "Task declares")):
                raise
            raise TaskError(
                f"{self.task.task_dir} asks for what its {which} cannot do: {error}; leave the task out or choose "
                f"another {which}"
            ) from error

    def _write_trial_lock(self) -> TrialLock:
        origin = self.task.origin
        if origin.lock is None:
            origin.lock = super()._write_trial_lock()
        return origin.lock


class RolloutTrial(_MadeFromPreparedTask, SingleStepTrial):
    """A trial of a task with one instruction."""


class RolloutStepsTrial(_MadeFromPreparedTask, MultiStepTrial):
    """A trial of a task in steps; it ends with the first step that leaves the rollout without a reward.

    Harbor would go on, with the verifier switched off, and the agent's report on a later step would hide that.
    """

    def _should_stop_after_step(self, step: StepConfig, step_result: StepResult) -> bool:
        lost = self.config.verifier.disable or step_result.exception_info is not None
        return lost or super()._should_stop_after_step(step, step_result)


_prepared: BoundedCache[Path, tuple[Stamp, PreparedTask]] = BoundedCache(4096)


def make_trial(config: TrialConfig, pass_env: Collection[str] = ()) -> Trial:
    """What `Trial.create` does for a local task, from the prepared task.

    pass_env: the driver's environment variables that the task may read. Raises TaskError for one that is not among
    them, for a task that is incomplete or malformed, and for one that asks for what the environment cannot do;
    AgentNotMade when the agent refuses its settings; and what an environment raises at its own.
    """
    path = config.task.path
    if path is None or not path.is_absolute():
        path = config.task.get_local_path()
    try:
        task = prepared_task(path).for_one_trial()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links that lead to themselves
        raise TaskError(f"{path} is not a complete task: {_why(path, error)}") from error
    if task.unusable:
        raise TaskError("; ".join(task.unusable))
    refuse_unless_allowed(task.requests, pass_env)
    if task.has_steps and task.config.agent.timeout_sec is None:
        # Harbor caps the limit of a step that has one; a step without any takes the task's.
        limit = {"timeout_sec": config.agent.max_timeout_sec}
        task.config = task.config.model_copy(update={"agent": task.config.agent.model_copy(update=limit)})
    kind = RolloutStepsTrial if task.has_steps else RolloutTrial
    download = TaskDownloadResult(path=path, download_time_sec=0.0, cached=True)
    return kind(config, _task=task, _task_download_result=download)


def prepared_task(path: Path) -> PreparedTask:
    """The task in `path`, prepared again when any of its files has changed."""
    stamp = _stamp(path)
    known = _prepared.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    task = PreparedTask(path)
    _prepared.put(path, (stamp, task))
    return task


def _why(path: Path, error: Exception) -> str:
    """What is wrong with a task that Harbor cannot read, with file and line where its own words have none."""
    flaws = flaws_of(path) if isinstance(error, UnicodeDecodeError | ValidationError) else []
    return "; ".join(flaws) or str(error)


def _stamp(directory: Path) -> Stamp:
    """Raises TaskError for what is neither a file nor a folder nor a link: copying a pipe would never end."""
    found: list[tuple[str, int, int]] = []
    waiting = [os.fspath(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    if is_special(status.st_mode):
                        raise TaskError(f"{entry.path} is neither a file nor a folder nor a link; remove it")
                    if entry.is_symlink():
                        with suppress(OSError):  # it leads nowhere: what counts is the link itself
                            status = entry.stat()
                    found.append((entry.path, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))
