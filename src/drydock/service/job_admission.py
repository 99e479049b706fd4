"""Whether a job that is asked for can be served, and what its workers get.

Everything that can be known without loading a model is refused here, before anything is created.
"""

import os

from drydock.engine.settings import InferenceConfig, LogProbConfig, TrainingConfig, parse_settings
from drydock.errors import ConfigError
from drydock.service.problems import Refusal
from drydock.wire.rest import JobCreate, SubJobConfig

TIMEOUT_RANGE_S = (300, 604_800)
ON_WORKER_LOSS = ("fail", "restart")
"""What happens when the process of a sub-job dies: the job fails, or the sub-job is started again."""


def refuse_unsupported(create: JobCreate) -> None:
    """Raises Refusal, naming the field: 422 for a value that cannot work, 501 for what is not served."""
    low, high = TIMEOUT_RANGE_S
    idle, pending = create.idle_timeout_seconds, create.pending_timeout_seconds
    if idle is not None and idle != 0 and not low <= idle <= high:
        raise Refusal(422, f"idle_timeout_seconds: {idle} is neither 0 nor between {low} and {high}")
    if pending is not None and not low <= pending <= high:
        raise Refusal(422, f"pending_timeout_seconds: {pending} is not between {low} and {high}")
    for index, config in enumerate(create.sub_job_configs):
        field_name = f"sub_job_configs.{index}"
        block = config.training_config or config.inference_config or {}
        try:
            if config.training_config is not None:
                parse_settings(TrainingConfig, block, where="training_config")
            elif config.job_type == "log_probability":
                parse_settings(LogProbConfig, block, where="inference_config")
            else:
                parse_settings(InferenceConfig, block, where="inference_config")
        except ConfigError as error:
            raise Refusal(422, f"{field_name}.{error}") from error
        choice = block.get("on_worker_loss")
        if choice is not None and choice not in ON_WORKER_LOSS:
            raise Refusal(422, f"{field_name}: on_worker_loss {choice!r} is none of {', '.join(ON_WORKER_LOSS)}")
        if block.get("multiplex_job_id"):
            raise Refusal(501, f"{field_name}: multiplex_job_id is not served yet")
        threads = block.get("torch_threads")
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise Refusal(422, f"{field_name}: torch_threads must be a positive integer, not {threads!r}")


def worker_threads(config: SubJobConfig) -> int:
    """CPU threads of a worker: as configured, else all cores for a trainer and half of them for a sampler.

    While a sampler decodes, the harness that it samples for needs the other cores.
    """
    block = config.training_config or config.inference_config or {}
    cores = os.cpu_count() or 1
    return int(block.get("torch_threads") or (cores if config.job_type == "training" else max(1, cores // 2)))


def wanted_slots(config: SubJobConfig) -> int:
    """GPUs (or CPU slots) that a sub-job asks for by `n_gpus`, 1 where it does not say."""
    count = (config.training_config or config.inference_config or {}).get("n_gpus")
    return max(1, int(count)) if isinstance(count, int | float) else 1
