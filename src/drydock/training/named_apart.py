"""A run's configuration for a job that is not the run's own, as a check or a measurement makes one."""

from drydock.training.config import RunConfig


def named_apart(config: RunConfig, suffix: str) -> RunConfig:
    """The run under a name with `suffix`, by which its job and rollouts are told from the run's own."""
    trainer = config.trainer.model_copy(update={"run_name": f"{config.trainer.run_name}.{suffix}"})
    service = config.service.model_copy(update={"job_comment": None})
    return config.model_copy(update={"trainer": trainer, "service": service})
