"""The parts of a sub-job's `training_config` and `inference_config` that the engines act on.

The wire lets a client send keys for other back ends (reference/training-api.md, section 1.3), so unknown keys on the
outer level pass; inside a block that is ours (`optimizer`, `scheduler`, `mb_spec`, `peft_config`) they are refused.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drydock.engine.lora_settings import LoraConfig
from drydock.engine.optimizer_settings import OptimizerConfig, ScheduleConfig
from drydock.errors import ConfigError

MISSPELLING = 0.85


class MicroBatchConfig(BaseModel):
    """How a forward-backward call is cut into pieces that fit in memory."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    max_tokens_per_mb: int = Field(default=16_384, ge=1)
    """Tokens computed at once, padding included. A longer row is computed alone."""


class RetentionConfig(BaseModel):
    """Which checkpoints of a job stay once it has saved another."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    keep_last: int = Field(ge=1)
    """How many of the newest to keep. The newest resumable one stays in any case, and so does what is in use."""
    keep_every_steps: int | None = Field(default=None, ge=1)
    """Keep those as well whose step this number divides."""


class TrainingConfig(BaseModel):
    """`training_config` of a training sub-job."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer and its learning rate."""
    scheduler: ScheduleConfig = ScheduleConfig()
    """How the learning rate changes from step to step. A rate given with a step wins from that step on."""
    gradient_clipping: float | None = Field(default=1.0, gt=0.0)
    """Largest global gradient norm; None turns clipping off."""
    max_seq_len: int | None = Field(default=None, ge=2)
    """Longest row, in tokens; the model's own limit when None."""
    mb_spec: MicroBatchConfig = MicroBatchConfig()
    """Micro-batching."""
    prefix_sharing: bool = True
    """Compute a token prefix that rows have in common once. Exact; off only for comparison."""
    activation_checkpointing: bool = False
    """Compute each layer's activations again in the backward pass instead of keeping them: less memory, about a third
    more time, the same gradients."""
    checkpoint_retention: RetentionConfig | None = None
    """Remove older checkpoints after each save (the service does); None keeps all."""
    peft_config: LoraConfig | None = None
    """Train a LoRA adapter on the frozen model instead of its weights."""


class LogProbConfig(BaseModel):
    """`inference_config` of a log-probability sub-job."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    max_seq_len: int | None = Field(default=None, ge=2)
    """Longest row, in tokens; the model's own limit when None."""
    mb_spec: MicroBatchConfig = MicroBatchConfig()
    """Micro-batching."""
    prefix_sharing: bool = True
    """Compute a token prefix that rows have in common once. Exact; off only for comparison."""


class InferenceConfig(BaseModel):
    """`inference_config` of a sampling sub-job."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    max_seq_len: int | None = Field(default=None, ge=2)
    """Longest prompt plus completion, in tokens; the model's own limit when None."""
    max_running_rows: int = Field(default=64, ge=1)
    """Requests decoded together."""
    kv_cache_tokens: int | None = Field(default=None, ge=1)
    """Tokens of keys and values that running requests may hold (rows times the longest of them). None: what fits in
    1 GiB, at most 131,072. Requests that grow beyond it wait in turn; one that needs more than the limit runs alone."""
    prefix_cache_tokens: int | None = Field(default=None, ge=0)
    """Tokens of keys and values kept of finished requests; 0 turns the prefix cache off. None: what fits in
    512 MiB, at most 65,536."""
    peft_config: LoraConfig | None = None
    """The adapter that the weight sync brings must have these settings (dropout aside); any adapter when None."""
    policy_adapter: str | None = None
    """LoRA adapter that the policy has from the start, until a weight sync: a folder (a checkpoint, or PEFT's)."""
    adapters: dict[str, str] = {}
    """LoRA adapters that are held from the start, beside the policy: name to folder (a checkpoint, or PEFT's)."""
    max_prefill_tokens: int = Field(default=8_192, ge=1)
    """Tokens prefilled at once, padding included. A longer prompt is prefilled in pieces."""


def parse_settings[Settings: BaseModel](
    model: type[Settings], values: Mapping[str, Any] | None, *, where: Literal["training_config", "inference_config"]
) -> Settings:
    """Validate; raises ConfigError naming the key. Keys whose value is None take the default."""
    given = {key: value for key, value in (values or {}).items() if value is not None or key == "gradient_clipping"}
    for key in given.keys() - model.model_fields.keys():
        if nearest := get_close_matches(key, model.model_fields, n=1, cutoff=MISSPELLING):
            raise ConfigError(f"{where}.{key} is unknown (did you mean {nearest[0]!r}?)")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(
            f"{where}.{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r})" for e in error.errors()
        )
        raise ConfigError(problems) from None
