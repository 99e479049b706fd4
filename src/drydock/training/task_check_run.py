"""A check of tasks with the sandboxes and deadlines of a run: the configuration's names meet `rollout.task_check`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from drydock.rollout.pool import size_default_executor
from drydock.rollout.settings import RolloutDeadlines, RolloutSettings
from drydock.rollout.task_check import OnDone, TaskCheck, check_tasks
from drydock.rollout.task_folder import task_folders
from drydock.rollout.trial_config import load_classes
from drydock.training.config import DeadlineConfig
from drydock.training.reward_config import reward_rule
from drydock.training.rollout_config import RewardConfig, SandboxConfig
from drydock.training.sandbox_ready import check_sandbox, environment_kwargs
from drydock.training.section import Section


class TaskCheckConfig(Section):
    """The sections of a run's configuration that a check of tasks needs."""

    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    deadlines: DeadlineConfig = DeadlineConfig()


def find_folders(sources: Sequence[Path]) -> list[Path]:
    """The task directories in `sources`, each once, in order. Raises ConfigError for a source without any."""
    found = [folder.resolve() for source in sources for folder in task_folders(source)]
    return list(dict.fromkeys(found))


async def run_check(
    folders: Sequence[Path],
    config: TaskCheckConfig,
    state_dir: Path,
    *,
    runs: int,
    concurrency: int,
    note: Callable[[str], None],
    on_done: OnDone,
) -> list[TaskCheck]:
    """Check the tasks in `folders`; see `check_tasks`.

    Raises UserError when this machine or the settings cannot work.
    """
    size_default_executor(concurrency)
    check_sandbox(config.sandbox, state_dir, note)
    settings = RolloutSettings(
        agent="nop",
        environment=config.sandbox.environment,
        environment_kwargs=environment_kwargs(config.sandbox, state_dir),
        pass_env=tuple(config.sandbox.pass_env),
        reward=reward_rule(config.reward),
        deadlines=RolloutDeadlines(
            sandbox_start_s=config.deadlines.sandbox_start_s,
            agent_s=config.deadlines.agent_s,
            verifier_s=config.deadlines.verifier_s,
        ),
    )
    load_classes(settings)
    return await check_tasks(folders, settings, runs=runs, concurrency=concurrency, on_done=on_done)
