"""What can be said about a job's models before anything of it is created: they exist, fit, and fit each other.

A sub-job may start from a checkpoint of any kind; a trainer takes over the optimizer of a resumable one unless its
`load_optimizer_states` is false. The checkpoint's architecture must be the model's. One that holds an adapter goes on
top of the model, and a trainer needs the same `peft_config` for it.
"""

import asyncio
from typing import Any

from drydock.service.checkpoints import Checkpoints
from drydock.service.model_facts import ModelFacts, facts_of, read_facts
from drydock.service.model_size import check_size
from drydock.service.pool import Pool
from drydock.service.problems import Refusal
from drydock.service.source_checkpoint import holds_adapter
from drydock.wire.rest import JobCreate, SubJobConfig


async def check_models(create: JobCreate, pool: Pool, checkpoints: Checkpoints) -> None:
    """Raises Refusal 422 naming field and value."""
    slots = sum(gpus_of(config, index) for index, config in enumerate(create.sub_job_configs))
    hardware = pool.check(create.hardware, slots)
    models = await asyncio.to_thread(_facts, create)
    for index, (config, facts) in enumerate(models):
        source = config.source_checkpoint_info
        if source is None:
            continue
        where = f"sub_job_configs.{index}.source_checkpoint_info"
        path = await checkpoints.find(source.source_job_id, source.checkpoint_id, where=where)
        if holds_adapter(path):
            if config.training_config is not None and not config.training_config.get("peft_config"):
                raise Refusal(
                    422,
                    f"{where}: checkpoint {source.checkpoint_id!r} holds an adapter, this sub-job trains all weights; "
                    "give it the same peft_config, or save the adapter merged and start from that",
                )
            continue
        stored = await asyncio.to_thread(read_facts, path)
        if facts is not None and (difference := stored.differences(facts)):
            raise Refusal(
                422, f"{where}: checkpoint {source.checkpoint_id!r} is no {config.model_name!r}: {difference}"
            )
    await asyncio.to_thread(check_size, models, hardware)


def gpus_of(config: SubJobConfig, index: int) -> int:
    """`n_gpus` of a sub-job, 1 where it does not say. Raises Refusal 422."""
    block = config.training_config or config.inference_config or {}
    count: Any = block.get("n_gpus")
    if count is None:
        return 1
    if isinstance(count, bool) or not isinstance(count, int | float) or count != count or not 1 <= count < 1e9:
        raise Refusal(422, f"sub_job_configs.{index}: n_gpus {count!r} is no positive number of GPUs")
    if count != int(count):
        raise Refusal(422, f"sub_job_configs.{index}: n_gpus {count!r} is no whole number")
    return int(count)


def _facts(create: JobCreate) -> list[tuple[SubJobConfig, ModelFacts | None]]:
    return [
        (config, facts_of(config.model_name, f"sub_job_configs.{index}.model_name"))
        for index, config in enumerate(create.sub_job_configs)
    ]
