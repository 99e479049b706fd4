"""`peft_config` of a sub-job: the LoRA settings that the wire knows, with its errors (no torch here).

The keys, defaults and limits are those of the Cortex Training client (reference/training-api.md, section 6.6): LoRA
only, no biases, at least one target, any other key refused. The same block may stand in `training_config` and in
`inference_config`.
"""

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""Files of an adapter's folder, as PEFT names them."""
BASE = "base"
"""Names the model without any adapter where an adapter's name may stand."""


class LoraConfig(BaseModel):
    """Low-rank adapters W + (lora_alpha / r) B A on chosen weights (LoRA, arXiv 2106.09685, section 4.1)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    peft_type: str
    """Must be `Lora`, in this spelling."""
    task_type: str = "CAUSAL_LM"
    """Must be `CAUSAL_LM`."""
    r: int = Field(default=8, ge=1, strict=True)
    """Rank of each adapter."""
    lora_alpha: int = Field(default=8, ge=0, strict=True)
    """Scale of the adapters, in units of 1/r."""
    lora_dropout: float = Field(default=0.0, ge=0.0, lt=1.0, strict=True)
    """Dropout on the adapters' inputs while gradients are computed. It turns prefix sharing off, and log-probs of the
    training pass then differ from the sampler's."""
    bias: str = "none"
    """Must be `none`."""
    target_modules: str | tuple[str, ...] = ()
    """Names of the linear layers to adapt (the ends of their paths), one pattern over whole paths, or `all-linear`."""
    target_parameters: tuple[str, ...] = ()
    """Ends of the paths of bare parameters to adapt, as the fused experts of a mixture have them."""

    @field_validator("peft_type")
    @classmethod
    def _lora(cls, value: str) -> str:
        if value != "Lora":
            raise ValueError("peft_type must be 'Lora'")
        return value

    @field_validator("task_type")
    @classmethod
    def _causal(cls, value: str) -> str:
        if value != "CAUSAL_LM":
            raise ValueError("task_type must be 'CAUSAL_LM'")
        return value

    @field_validator("bias")
    @classmethod
    def _no_bias(cls, value: str) -> str:
        if value != "none":
            raise ValueError("only bias='none' is supported")
        return value

    @model_validator(mode="after")
    def _check_targets(self) -> "LoraConfig":
        named = (self.target_modules,) if isinstance(self.target_modules, str) else self.target_modules
        if not all(named) or not all(self.target_parameters):
            raise ValueError("target_modules and target_parameters must hold non-empty strings")
        if not named and not self.target_parameters:
            raise ValueError("name target_modules, target_parameters, or both (for example 'all-linear')")
        if self.lora_dropout and self.target_parameters:
            raise ValueError("lora_dropout cannot act on target_parameters; set it to 0 or name target_modules")
        return self

    def same_adapter(self, other: "LoraConfig") -> bool:
        """Whether an adapter of one configuration is one of the other: all but the dropout agree."""
        return self.model_dump(exclude={"lora_dropout"}) == other.model_dump(exclude={"lora_dropout"})
