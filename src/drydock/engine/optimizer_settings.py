"""The blocks `optimizer` and `scheduler` of a `training_config` (no torch here). Unknown keys are refused."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

type OptimizerName = Literal["adamw", "adamw_8bit", "sgd"]

SPELLINGS: dict[str, OptimizerName] = {
    "adamw": "adamw",
    "adam_w": "adamw",
    "adamw8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "adam_w_8bit": "adamw_8bit",
    "sgd": "sgd",
}
ONLY_ADAM = ("betas", "eps")
ONLY_SGD = ("momentum", "nesterov")


class OptimizerConfig(BaseModel):
    """The optimizer. Weight decay acts on matrices and embeddings, not on norms and biases."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = "AdamW"
    """`AdamW` (arXiv 1711.05101), `AdamW_8bit` (arXiv 2110.02861; needs the extra bitsandbytes) or `SGD`, in any
    spelling of their case."""
    lr: float = Field(default=1e-6, ge=0.0)
    """Learning rate that the schedule multiplies, until a step names another."""
    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled weight decay (AdamW), or the factor of an L2 penalty (SGD)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW: decay of the first and second moment."""
    eps: float = Field(default=1e-8, gt=0.0)
    """AdamW: added to the denominator."""
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)
    """SGD: decay of the running gradient."""
    nesterov: bool = False
    """SGD: Nesterov's form of momentum."""
    fused: bool | None = None
    """Accepted for the wire; the engine picks the fastest exact implementation itself."""

    @property
    def kind(self) -> OptimizerName:
        """The optimizer that `name` spells."""
        return SPELLINGS[_plain(self.name)]

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if _plain(value) not in SPELLINGS:
            raise ValueError("unknown optimizer; known: AdamW, AdamW_8bit, SGD")
        return value

    @model_validator(mode="after")
    def _check_keys(self) -> "OptimizerConfig":
        foreign = ONLY_ADAM if self.kind == "sgd" else ONLY_SGD
        for key in foreign:
            if key in self.model_fields_set:
                raise ValueError(f"{key!r} has no meaning for {self.name}; remove it or choose another optimizer")
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError("betas must be at least 0 and below 1")
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class ScheduleConfig(BaseModel):
    """How the learning rate changes with the optimizer steps taken; see `drydock.engine.schedules`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises in equal parts to its full value."""
    total_steps: int | None = Field(default=None, ge=1)
    """linear, cosine: step at which the rate has fallen to `min_lr_ratio`, warm-up included."""
    min_lr_ratio: float = Field(default=0.0, ge=0.0, le=1.0)
    """linear, cosine: the lowest rate, as a part of the full one."""

    @model_validator(mode="after")
    def _check_end(self) -> "ScheduleConfig":
        if self.name == "constant":
            for key in ("total_steps", "min_lr_ratio"):
                if key in self.model_fields_set and getattr(self, key) is not None:
                    raise ValueError(
                        f"{key!r} has no meaning for a constant schedule; remove it or name linear or cosine"
                    )
        elif self.total_steps is None:
            raise ValueError(f"a {self.name} schedule needs total_steps")
        elif self.total_steps <= self.warmup_steps:
            raise ValueError("total_steps must be greater than warmup_steps")
        return self


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
