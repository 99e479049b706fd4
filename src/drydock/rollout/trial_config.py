"""From Drydock's settings to Harbor's trial configuration."""

from pathlib import Path

from harbor.models.environment_type import EnvironmentType
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig, VerifierConfig
from harbor.utils.import_path import import_class

from drydock.errors import ConfigError
from drydock.harness.agent_class import driver_side_agent
from drydock.rollout.environment_ready import unknown_environment
from drydock.rollout.settings import SANDBOXES, RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.task_limits import TaskLimits, task_limits


def trial_config(spec: RolloutSpec, settings: RolloutSettings, trials_dir: Path) -> TrialConfig:
    """Describe the trial of `spec` to Harbor; it will keep its files in `trials_dir / spec.rollout_id`.

    Raises TaskError for an unreadable task.toml and ConfigError for an unknown environment.
    """
    limits = task_limits(spec.task_path)
    return TrialConfig(
        task=TaskConfig(path=spec.task_path),
        trial_name=spec.rollout_id,
        trials_dir=trials_dir,
        agent=_agent(spec, settings, limits),
        environment=_environment(settings),
        verifier=VerifierConfig(max_timeout_sec=settings.deadlines.verifier_s),
        environment_build_timeout_multiplier=limits.build_multiplier(settings.deadlines),
    )


def load_classes(settings: RolloutSettings) -> None:
    """Import the agent and the environment, and let the agent check its settings.

    Takes seconds the first time (the agent's SDK), so a driver does it in a thread while it waits for something else.
    Raises ConfigError when a class cannot be imported, UserError when the agent refuses its settings.
    """
    agent = driver_side_agent(settings.agent)
    if hasattr(agent, "check_settings"):
        agent.check_settings(settings.agent_kwargs)  # pyright: ignore[reportAttributeAccessIssue]
    environment = sandbox_class(settings)
    if ":" in environment:
        try:
            import_class(environment, label="sandbox")
        except (ValueError, TypeError) as error:
            raise ConfigError(f"the sandbox {environment} cannot be imported: {error}") from error


def kills_leftovers(settings: RolloutSettings) -> bool:
    """Whether the sandbox can kill what an agent left running before it is graded; none of Harbor's own can."""
    name = sandbox_class(settings)
    return ":" in name and hasattr(import_class(name, label="sandbox"), "kill_processes")


def _agent(spec: RolloutSpec, settings: RolloutSettings, limits: TaskLimits) -> AgentConfig:
    """An override would replace the limits of all steps; so a task in steps gets a cap (see `make_trial`)."""
    own_class = ":" in settings.agent
    return AgentConfig(
        name=None if own_class else settings.agent,
        import_path=settings.agent if own_class else None,
        override_timeout_sec=None if limits.in_steps else limits.agent_limit_s(settings.deadlines),
        max_timeout_sec=settings.deadlines.agent_s if limits.in_steps else None,
        override_setup_timeout_sec=settings.deadlines.agent_setup_s,
        kwargs={**settings.agent_kwargs, "rollout_id": spec.rollout_id} if own_class else dict(settings.agent_kwargs),
    )


def sandbox_class(settings: RolloutSettings) -> str:
    """`module:Class` of the environment, or its plain name when it is one of Harbor's."""
    return SANDBOXES.get(settings.environment, settings.environment)


def _environment(settings: RolloutSettings) -> EnvironmentConfig:
    kwargs = dict(settings.environment_kwargs)
    name = settings.environment
    if name in SANDBOXES:
        return EnvironmentConfig(import_path=SANDBOXES[name], kwargs={"auto_mounting": True, **kwargs})
    if ":" in name:
        return EnvironmentConfig(import_path=name, kwargs=kwargs)
    try:
        return EnvironmentConfig(type=EnvironmentType(name), kwargs=kwargs)
    except ValueError:
        raise unknown_environment(name) from None
