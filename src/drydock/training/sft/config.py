"""What a supervised run is: the configuration models of `drydock sft`.

Names and style are those of `drydock train` where both have a setting.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from drydock.training.config import ModelConfig, OptimizerConfig, TrainerDeadlineConfig, TrainerServiceConfig
from drydock.training.section import Section


class SftLoraConfig(Section):
    rank: int = Field(default=0, ge=0)
    """Rank of a LoRA adapter on the frozen model; 0 trains all weights."""

    alpha: int = Field(default=16, gt=0)
    """Scale of the adapter, in units of 1/rank."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's inputs."""

    target_modules: str | list[str] = "all-linear"
    """Layers to adapt: the ends of their names, one pattern over whole names, or `all-linear`."""

    merge: bool = False
    """Save the final checkpoint as a whole model with the adapter added in, in place of the adapter."""


class SftModelConfig(ModelConfig):
    lora: SftLoraConfig = SftLoraConfig()


class SftOptimizerConfig(OptimizerConfig):
    lr: float = Field(default=1e-5, gt=0)
    """Learning rate of AdamW, at its highest."""

    num_warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly to `lr`."""

    scheduler: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up, down to `min_lr_ratio` at the last step."""

    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """The lowest rate of `linear` and `cosine`, as a part of `lr`."""


class SftPolicyConfig(Section):
    model: SftModelConfig = SftModelConfig()
    optimizer_config: SftOptimizerConfig = SftOptimizerConfig()


class SftTrainerConfig(Section):
    run_name: str = Field(default="sft", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run: of its log file, its job's comment and its default folder."""

    ckpt_path: Path | None = None
    """The run's folder. Default: `runs/<run_name>`, or the environment variable CKPT_DIR."""

    seed: int = Field(default=0, ge=0)
    """Seeds the order of conversations and an adapter's first weights."""

    max_training_steps: int | None = Field(default=None, gt=0)
    """Steps to train. Default: `epochs` passes over the conversations."""

    epochs: int = Field(default=1, gt=0)
    """Passes over the conversations; what is left of a pass after its last whole batch waits for another pass."""

    train_batch_size: int = Field(default=16, gt=0)
    """Conversations a step; no more than `data.train` holds."""

    eval_before_train: bool = False
    """Evaluate before the first step. Evaluations need `data.eval`."""

    eval_after_train: bool = True
    """Evaluate after the last step, if there is a `data.eval`."""

    eval_interval: int = Field(default=0, ge=0)
    """Evaluate after every so many steps; 0: never."""

    ckpt_interval: int = Field(default=0, ge=0)
    """Save a resumable checkpoint after every so many steps; 0: never."""

    max_ckpts_to_keep: int | None = Field(default=None, gt=0)
    """Keep only so many of the newest checkpoints. Default: all."""

    save_final_checkpoint: bool = True
    """Save the final weights as a Hugging Face folder (a PEFT folder for LoRA), `checkpoints/step_<N>`. Where
    `ckpt_interval` saves the last step as well, its checkpoint is both, saved once."""

    resume_mode: Literal["none", "latest"] = "none"
    """`latest`: go on from the last resumable checkpoint of the run in this folder, as if it had not stopped."""

    policy: SftPolicyConfig = SftPolicyConfig()


class SftDataConfig(Section):
    train: list[Path] = Field(default=[])
    """Files of conversations to train on, `.jsonl` or `.parquet`. Required."""

    eval: list[Path] = Field(default=[])
    """Files of held-out conversations."""

    max_length: int = Field(default=4096, gt=1)
    """Tokens of one conversation at most, and of the rows that they are packed into."""

    too_long: Literal["refuse", "drop"] = "refuse"
    """A conversation of more tokens: stop before anything is trained, or leave it out and say how many there were."""

    packing: bool = True
    """Pack several conversations into one row. It changes no result, since each is computed by itself; it keeps
    padding off the wire."""


class SftConfig(Section):
    """A whole supervised run, as in a TOML file."""

    trainer: SftTrainerConfig = SftTrainerConfig()
    data: SftDataConfig = SftDataConfig()
    service: TrainerServiceConfig = TrainerServiceConfig()
    deadlines: TrainerDeadlineConfig = TrainerDeadlineConfig()

    @property
    def merges_adapter(self) -> bool:
        """Whether the final checkpoint is a whole model with the adapter added in."""
        return bool(self.trainer.policy.model.lora.rank and self.trainer.policy.model.lora.merge)

    @model_validator(mode="after")
    def _required_values(self) -> Self:
        trainer, optimizer = self.trainer, self.trainer.policy.optimizer_config
        if not trainer.policy.model.path:
            raise ValueError("trainer.policy.model.path is required: a hub id or a local model folder")
        if not self.data.train:
            raise ValueError("data.train is required: files of conversations, .jsonl or .parquet")
        if not self.data.eval and (trainer.eval_before_train or trainer.eval_interval):
            raise ValueError(
                "trainer.eval_before_train and trainer.eval_interval need data.eval: held-out conversations"
            )
        if optimizer.scheduler == "constant" and optimizer.min_lr_ratio:
            raise ValueError(
                "trainer.policy.optimizer_config.min_lr_ratio has no meaning for scheduler constant; name linear or "
                "cosine, or remove it"
            )
        return self
