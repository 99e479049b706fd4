"""Whether a job that is asked for can be served, and what its workers get.

Everything that can be known without loading a model is refused here, before anything is created.
"""

import os

from drydock.engine.settings import InferenceConfig, TrainingConfig, parse_settings
from drydock.errors import ConfigError
from drydock.service.problems import Refusal
from drydock.wire.rest import JobCreate, SubJobConfig

TIMEOUT_RANGE_S = (300, 604_800)


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
        if config.job_type == "log_probability":
            raise Refusal(501, f"{field_name}.job_type: log_probability sub-jobs are not served yet")
        extra = config.model_extra or {}
        if extra.get("source_checkpoint_info"):
            raise Refusal(501, f"{field_name}.source_checkpoint_info: use the load call once the job is running")
        block = config.training_config or config.inference_config or {}
        try:
            if config.training_config is not None:
                parse_settings(TrainingConfig, block, where="training_config")
            else:
                parse_settings(InferenceConfig, block, where="inference_config")
        except ConfigError as error:
            raise Refusal(422, f"{field_name}.{error}") from error
        for key in ("multiplex_job_id", "peft_config"):
            if block.get(key):
                raise Refusal(501, f"{field_name}: {key} is not served yet")
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


def wanted_gpus(config: SubJobConfig) -> int:
    """GPUs that a sub-job asks for, 0 where it does not say."""
    count = (config.training_config or config.inference_config or {}).get("n_gpus", 0)
    return int(count) if isinstance(count, int | float) else 0
