"""Whether the models of a job can fit: a lower bound of the memory they need against what there is.

    training          parameters, gradients and two optimizer moments, all in the sub-job's dtype
    with an adapter   parameters (the adapter is small beside them)
    any other         parameters

Without a dtype, an engine takes float32 on a CPU and bfloat16 on a GPU.

Activations and caches come on top, so what is refused here could never have run. On CPU slots all sub-jobs of a job
share the machine's memory; on GPUs each has its own `n_gpus`.
"""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from drydock.service.gpus import QUERY_TIMEOUT_S
from drydock.service.job_admission import wanted_slots
from drydock.service.model_facts import ModelFacts
from drydock.service.problems import Refusal
from drydock.wire.rest import SubJobConfig

GIB = 1 << 30
ITEM_BYTES = {"float64": 8, "float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2}
TRAINING_COPIES = 4
KNOWN_GPU_GIB = {"H200": 141, "B200": 180, "B300": 288, "H100": 80, "A100": 80}


def needed_bytes(config: SubJobConfig, facts: ModelFacts | None, *, on_cpu: bool) -> int:
    """Lower bound of a sub-job's memory, 0 where its model's size is not known."""
    if facts is None or facts.parameters is None:
        return 0
    usual = "float32" if on_cpu else "bfloat16"
    item = ITEM_BYTES.get((config.dtype or usual).removeprefix("torch."), 2)
    trains_all = config.job_type == "training" and not (config.training_config or {}).get("peft_config")
    return facts.parameters * item * (TRAINING_COPIES if trains_all else 1)


def check_size(models: list[tuple[SubJobConfig, ModelFacts | None]], hardware: str) -> None:
    """Raises Refusal 422 naming the sub-job, what it needs and what there is."""
    on_cpu = hardware == "CPU"
    total = 0
    for index, (config, facts) in enumerate(models):
        needed = needed_bytes(config, facts, on_cpu=on_cpu)
        total += needed
        have = machine_bytes() if on_cpu else gpu_bytes(hardware) * wanted_slots(config)
        if needed > have > 0 or (on_cpu and total > have):
            raise Refusal(
                422,
                f"sub_job_configs.{index}.model_name: {config.model_name!r} needs at least {needed / GIB:.1f} GiB for "
                f"{config.job_type} ({total / GIB:.1f} GiB with the sub-jobs before it), {hardware} offers "
                f"{have / GIB:.1f} GiB; take a smaller model, a smaller dtype or more n_gpus",
            )


@cache
def machine_bytes() -> int:
    """Memory of this machine, or what its control group allows."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


@cache
def gpu_bytes(hardware: str) -> int:
    """Memory of one GPU: as the driver says, else as its type is built; 0 when neither is known."""
    try:
        query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        listed = subprocess.run(query, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=True).stdout
        sizes = [int(size) for size in re.findall(r"\d+", listed)]
    except (OSError, subprocess.SubprocessError):
        sizes = []
    return max(sizes) << 20 if sizes else KNOWN_GPU_GIB.get(hardware, 0) * GIB
