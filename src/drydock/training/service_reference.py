"""Pages about the training service, made from its models: `python -m drydock.training.service_reference PAGE`.

PAGE is `service-settings` (docs/service-settings.md) or `job-configuration` (docs/job-configuration.md).
"""

import sys

from drydock.engine.lora_settings import LoraConfig
from drydock.engine.optimizer_settings import OptimizerConfig, ScheduleConfig
from drydock.engine.settings import InferenceConfig, LogProbConfig, MicroBatchConfig, RetentionConfig, TrainingConfig
from drydock.service.settings import ServiceSettings
from drydock.training.config_tables import key_table

SETTINGS = """\
# Settings of the training service

Every key of the TOML file of `drydock service start --config FILE`, and of its `key=value` words. A word wins over an
option of the command, an option over the file. A table is written `[pool]` in the file and `pool.H200=8` as a word.
An unknown key is refused with the nearest known name. Paths in the file are relative to the file, all others to
the working directory. `token` and `database_url` are better given by
the environment variables `DRYDOCK_SERVICE_TOKEN` and `DRYDOCK_SERVICE_DATABASE_URL`. The command listens on port 8094
unless told otherwise. How to run the service is in [service.md](service.md). This page is made from the code (`make
docs`).
"""

JOB = """\
# What a job's configuration holds

A job is a model, or several, in up to one training sub-job and any number of sampling and log-probability sub-jobs.
This page is made from the code (`make docs`); how a job is sent is in [service-clients.md](service-clients.md).

```json
{
  "job_id": "first",
  "comment": "by hand",
  "sub_job_configs": [
    {"job_type": "training", "model_name": "model",
     "training_config": {"optimizer": {"name": "AdamW", "lr": 1e-5},
                         "scheduler": {"name": "cosine", "warmup_steps": 10, "total_steps": 500},
                         "on_worker_loss": "restart"}},
    {"job_type": "sampling", "model_name": "model", "inference_config": {"max_seq_len": 8192}}
  ]
}
```

## The job

| key | meaning |
|---|---|
| `sub_job_configs` | its sub-jobs, at least one; required |
| `job_id` | letters, digits, `.`, `_`, `-`; made by the service when left out |
| `name`, `comment` | free texts; the list of jobs can be filtered by them |
| `hardware` | type of the pool, such as `H200` or `CPU`; the pool's first one when left out |
| `pending_timeout_seconds` | 300 to 604,800; a job that does not run by then fails |
| `idle_timeout_seconds` | 300 to 604,800, or 0 for never; a running job that nobody calls for so long is terminated |
| `experiment_name` | echoed by `experiment-run` |

Further keys are kept and echoed.

## A sub-job

| key | meaning |
|---|---|
| `job_type` | `training`, `sampling` or `log_probability` |
| `model_name` | hub id, or a folder on the service's machine; required |
| `training_config` | of a training sub-job, and only there |
| `inference_config` | of a sampling or log-probability sub-job, and only there |
| `dtype` | `float32`, `bfloat16`, `float16` or `float64`; float32 on a CPU and bfloat16 on a GPU when left out |
| `seed` | of samples without a seed of their own, an adapter's first weights, dropout; 0 when left out |
| `source_checkpoint_info` | `{"source_job_id", "checkpoint_id"}`: begin with this checkpoint's weights |

With `bfloat16` or `float16` the trainer keeps float32 masters, gradients and optimizer state, and the output head
computes in float32 in trainer and sampler alike.

A source checkpoint may be of another user's job only where the token allows it, and its job may be over. A trainer
takes over the optimizer state, step count and random state of a resumable one. A checkpoint that holds an adapter
goes on top of `model_name`; a trainer then needs the same `peft_config`.

## Keys of every `training_config` and `inference_config`

| key | default | meaning |
|---|---|---|
| `n_gpus` | 1 | GPUs, or CPU slots, that the sub-job is given of the pool; its engine computes on one GPU |
| `torch_threads` | all cores to train, half of them otherwise | CPU threads of its process |
| `on_worker_loss` | `fail` | when its process dies: `fail` the job, or `restart` the sub-job |
| `load_optimizer_states` | `true` | `training_config` with `source_checkpoint_info`: `false` takes its weights only |

What a restart keeps is in [service.md](service.md#what-survives-what). Other unknown keys pass, because clients send
keys for other back ends, except one that looks like a misspelt key of the tables below: it is refused. Inside a block
an unknown key is always refused. `multiplex_job_id` is answered with 501.
"""

BLOCKS = {"optimizer": OptimizerConfig, "scheduler": ScheduleConfig, "mb_spec": MicroBatchConfig}
LATER_BLOCKS = {"checkpoint_retention": RetentionConfig, "peft_config": LoraConfig}

SCHEDULE = """\
With n steps taken before, w `warmup_steps`, T `total_steps`, m `min_lr_ratio` and p = min(1, (n - w) / (T - w)), the
rate of a step is `optimizer.lr` times (n + 1) / w during the warm-up and afterwards 1 (constant), m + (1 - m)(1 - p)
(linear) or m + (1 - m)(1 + cos πp) / 2 (cosine).
"""


def settings_reference() -> str:
    """docs/service-settings.md."""
    return "\n".join((SETTINGS, key_table(ServiceSettings)))


def job_reference() -> str:
    """docs/job-configuration.md."""
    parts = [JOB, "## `training_config`\n", key_table(TrainingConfig, blocks=True)]
    for name, block in (BLOCKS | LATER_BLOCKS).items():
        parts += [f"### `{name}`\n", f"{_summary(block)}\n", key_table(block)]
        if block is ScheduleConfig:
            parts.append(SCHEDULE)
    parts += ["## `inference_config` of a sampling sub-job\n", key_table(InferenceConfig, blocks=True)]
    parts += ["## `inference_config` of a log-probability sub-job\n", key_table(LogProbConfig, blocks=True)]
    parts.append("`mb_spec` and `peft_config` are those of `training_config`.\n")
    return "\n".join(parts)


PAGES = {"service-settings": settings_reference, "job-configuration": job_reference}


def _summary(block: type) -> str:
    return (block.__doc__ or "").partition("; see")[0].strip().removesuffix(".") + "."


if __name__ == "__main__":
    print(PAGES[sys.argv[1]](), end="")
