"""Whether the users that a task names can run commands in its sandbox, asked of the sandbox before the agent begins.

Otherwise every command of the agent would fail, which the policy would be blamed for: a rollout with reward 0.
"""

from harbor.environments.base import BaseEnvironment
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import VerifierEnvironmentMode, resolve_task_verifier_mode

from drydock.errors import TaskError

_WAIT_S = 30


async def refuse_unknown_users(task: Task, environment: BaseEnvironment) -> None:
    """Raise TaskError for a user of `[agent]` or `[verifier]` as whom the sandbox can run nothing.

    Users of a step are not looked at, since the steps before it may make them; neither is that of a verifier in a
    sandbox of its own.
    """
    config = task.config
    users = {"agent.user": config.agent.user}
    if not config.steps and resolve_task_verifier_mode(config) is VerifierEnvironmentMode.SHARED:
        users["verifier.user"] = config.verifier.user
    for key, user in users.items():
        if user is None:
            continue
        done = await environment.exec("true", cwd="/", user=user, timeout_sec=_WAIT_S)
        if done.return_code != 0:
            said = (done.stderr or done.stdout or f"exit code {done.return_code}").strip()
            raise TaskError(
                f"{task.paths.config_path}: {key} is {user!r}, as whom no command can be run in the sandbox ({said}); "
                "make that user in the Dockerfile (RUN useradd), or leave the key out"
            )
