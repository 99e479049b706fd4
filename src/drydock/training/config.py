"""What a run is: the configuration models of `drydock train`.

Key names follow SkyRL and the published Arctic recipes where they have one, so that command lines carry over. Every
model refuses unknown keys; `config_file.py` turns that refusal into a message with the nearest name. Nothing here
reads the environment or the disk.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from drydock.training.diagnosis_config import DiagnosisConfig
from drydock.training.off_policy import Correction
from drydock.training.rollout_config import AgentConfig, GeneratorConfig, RewardConfig, SandboxConfig
from drydock.training.section import Section


class ModelConfig(Section):
    path: str = ""
    """Hub id or local folder of a Hugging Face causal language model with tokenizer and chat template. Required."""


class OptimizerConfig(Section):
    lr: float = Field(default=1e-6, gt=0)
    """Learning rate of AdamW."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""

    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Exponential decay rates of AdamW's two moments."""

    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this global norm."""

    num_warmup_steps: int = Field(default=0, ge=0)
    """Training steps over which the learning rate rises linearly to `lr`; constant afterwards."""


class PolicyConfig(Section):
    model: ModelConfig = ModelConfig()
    optimizer_config: OptimizerConfig = OptimizerConfig()


CLIP_DEFAULTS = {"gspo": (3e-4, 4e-4), "grpo": (0.2, 0.2)}
"""Lower and upper clip distance by loss: a sequence's ratio is a mean over its tokens, so it moves far less."""


class AlgorithmConfig(Section):
    policy_loss_type: Literal["gspo", "grpo"] = "gspo"
    """`gspo`: one importance ratio a sequence (arXiv 2507.18071); `grpo`: one a token (arXiv 2402.03300)."""

    eps_clip_low: float | None = Field(default=None, gt=0)
    """How far below 1 the importance ratio may fall before it is clipped. Default: 3e-4 for GSPO, 0.2 for GRPO."""

    eps_clip_high: float | None = Field(default=None, gt=0)
    """How far above 1 the importance ratio may rise before it is clipped. Default: 4e-4 for GSPO, 0.2 for GRPO."""

    loss_reduction: Literal["sequence_mean", "token_mean"] = "sequence_mean"
    """`sequence_mean`: mean over tokens in a rollout, then over rollouts; `token_mean`: mean over all tokens (DAPO)."""

    off_policy_correction: Correction | None = None
    """Weigh tokens by how far the trainer's policy is from the one that sampled them: `tis` truncates the weight of a
    token at 2, `sequence_tis` that of a rollout at 5, `icepop` drops tokens outside of 0.5 to 5. Default: `tis` where
    `trainer.max_staleness_steps` allows stale rollouts, else `none`."""

    dynamic_filtering: bool = False
    """Set groups aside in which all rewards are equal, and run further tasks in their place (DAPO, arXiv 2503.14476);
    see `generator.refill_rounds`."""

    grpo_norm_by_std: bool = False
    """Divide a group's advantages by their standard deviation (GRPO), or not (Dr.GRPO)."""

    @model_validator(mode="after")
    def _clip_fits_the_ratio(self) -> Self:
        low, high = CLIP_DEFAULTS[self.policy_loss_type]
        self.eps_clip_low = low if self.eps_clip_low is None else self.eps_clip_low
        self.eps_clip_high = high if self.eps_clip_high is None else self.eps_clip_high
        return self


class TrainerConfig(Section):
    run_name: str = Field(default="drydock", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run: of its log file, its job's comment and its default folder; or the environment variable
    RUN_NAME."""

    ckpt_path: Path | None = None
    """The run's folder. Default: `runs/<run_name>`, or the environment variable CKPT_DIR."""

    seed: int = Field(default=0, ge=0)
    """Seeds the order of tasks, the sampling engine and the warm start's batches."""

    logger: Literal["console"] = "console"
    """Where metrics go besides `metrics.jsonl`: the run's log. Or the environment variable LOGGER."""

    @field_validator("logger", mode="before")
    @classmethod
    def _a_logger_that_is_there(cls, value: object) -> object:
        if value not in ("console", ["console"]):
            raise ValueError(f"{value!r} is not there, only console: metrics.jsonl can be sent to other trackers")
        return "console"

    max_training_steps: int | None = Field(default=None, gt=0)
    """Steps to train. Default: as many as the task set allows in `epochs` passes."""

    epochs: int = Field(default=1, gt=0)
    """Passes over the task set."""

    train_batch_size: int = Field(default=8, gt=0)
    """Tasks a step."""

    max_staleness_steps: int = Field(default=0, ge=0)
    """Asynchronous training: steps that a rollout may lag behind the policy that it trains. Rollouts of so many steps
    to come run while the trainer works. 0: rollouts and training take turns."""

    policy_mini_batch_size: int | None = Field(default=None, gt=0)
    """Tasks an optimizer update. Default: all of the step's; must divide `train_batch_size`."""

    eval_before_train: bool = False
    """Evaluate before the first step."""

    eval_after_train: bool = False
    """Evaluate after the last step."""

    eval_interval: int = Field(default=0, ge=0)
    """Evaluate after every so many steps; 0: never."""

    ckpt_interval: int = Field(default=0, ge=0)
    """Save a resumable checkpoint after every so many steps; 0: never."""

    max_ckpts_to_keep: int | None = Field(default=None, gt=0)
    """Keep only so many of the newest resumable checkpoints. Default: all."""

    resume_mode: str = Field(default="none", min_length=1)
    """`none`: start anew, an earlier run in the folder is kept under another name. `latest`: go on from the last
    resumable checkpoint of the run in the folder, start anew where it has none. Or one of its checkpoint folders."""

    save_on_stop: bool = False
    """Save a resumable checkpoint when SIGINT or SIGTERM stops the run, where the last step's weights are whole."""

    save_final_checkpoint: bool = False
    """Save the final weights as a Hugging Face folder, `checkpoints/step_<N>`."""

    step_retries: int = Field(default=3, ge=0)
    """How often a step whose rollouts all failed is tried again before the run stops."""

    group_retries: int = Field(default=1, ge=0)
    """How often a task's group in which something broke and nothing was graded is run again, while others were
    graded."""

    task_strikes: int = Field(default=2, ge=0)
    """A task is left out of the rest of the run after so many groups in a row in which all rollouts broke; 0: never."""

    policy: PolicyConfig = PolicyConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()

    @model_validator(mode="after")
    def _mini_batch_divides(self) -> Self:
        if self.policy_mini_batch_size and self.train_batch_size % self.policy_mini_batch_size:
            raise ValueError(
                f"policy_mini_batch_size ({self.policy_mini_batch_size}) must divide train_batch_size "
                f"({self.train_batch_size})"
            )
        return self


class DataConfig(Section):
    train: list[Path] = []
    """Harbor task directories, or directories of them, to train on, or the environment variable TRAIN_HARBOR_TASKS,
    joined by colons. Required."""

    eval: list[Path] = []
    """The same for evaluation, or EVAL_HARBOR_TASKS. Default: the training tasks, with a warning."""

    shuffle: bool = True
    """Shuffle the training tasks, differently in each epoch."""


class TrainerServiceConfig(Section):
    base_url: str | None = None
    """Address of a running training service, or the environment variable ARCTIC_CORTEX_BASE_URL. Default: one is
    started on loopback for this run."""

    host: str | None = Field(default=None, pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?$")
    """Host name of the hosted service, or ARCTIC_CORTEX_HOST; `database` goes with it, and its access token comes from
    ARCTIC_CORTEX_PAT. `base_url` wins over it."""

    @field_validator("base_url")
    @classmethod
    def _no_credentials(cls, value: str | None) -> str | None:
        if value is not None and "@" in value.split("//", 1)[-1].split("/", 1)[0]:
            raise ValueError(
                "it is written to files, so it may hold no credentials: give DRYDOCK_SERVICE_TOKEN instead"
            )
        return value

    database: str = "drydock"
    """Database part of the service's path, or ARCTIC_CORTEX_DATABASE."""

    schema_name: str = Field(default="PUBLIC", alias="schema")
    """Schema part of the service's path, or ARCTIC_CORTEX_SCHEMA."""

    endpoint: str = "cortex-training"
    """Endpoint part of the service's path, or ARCTIC_CORTEX_ENDPOINT."""

    job_comment: str | None = Field(default=None, min_length=1)
    """Comment of the run's job, by which it is found, or ARCTIC_CORTEX_JOB_COMMENT. Default: `trainer.run_name`."""

    idle_timeout_s: int = Field(default=7200, ge=300, le=604_800)
    """The service ends the job when nobody has called for so long: what is left of a driver that was killed."""

    n_gpus_training: int = Field(default=1, gt=0)
    """GPUs (CPU slots on a machine without) of the training sub-job."""

    max_tokens_per_microbatch: int = Field(default=10240, gt=0)
    """Token budget of one forward-backward pass."""

    torch_threads_training: int | None = Field(default=None, gt=0)
    """CPU threads of the training sub-job. Default: the service's choice."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, populate_by_name=True)

    @property
    def address(self) -> str | None:
        """Of the service that is named; None: the run starts one of its own."""
        return self.base_url or (f"https://{self.host}" if self.host else None)

    @model_validator(mode="after")
    def _hosted_names_its_database(self) -> Self:
        if self.host and not self.base_url and "database" not in self.model_fields_set:
            raise ValueError("host: the hosted service needs database as well (ARCTIC_CORTEX_DATABASE)")
        return self


class ServiceConfig(TrainerServiceConfig):
    n_gpus_sampling: int = Field(default=1, gt=0)
    """GPUs (CPU slots on a machine without) of the sampling sub-job."""

    torch_threads_sampling: int | None = Field(default=None, gt=0)
    """CPU threads of the sampling sub-job. Default: the service's choice."""


class WarmStartStage(Section):
    conversations: Path
    """JSON Lines; each line `{"messages": [user, assistant, tool, …]}` without a system message (the run's is used)."""

    steps: int = Field(gt=0)
    """Optimizer steps of this stage."""

    batch_size: int = Field(default=16, gt=0)
    """Conversations a step."""

    lr: float = Field(gt=0)
    """Learning rate at the start of the stage."""

    lr_final: float | None = Field(default=None, gt=0)
    """Learning rate at its end, reached linearly. Default: constant."""


class TrainerDeadlineConfig(Section):
    service_start_s: float = Field(default=120.0, gt=0)
    """The embedded service to answer."""

    job_running_s: float = Field(default=1800.0, gt=0)
    """The job to be placed, its models loaded. Or the environment variable STARTUP_TIMEOUT."""

    forward_backward_s: float = Field(default=1800.0, gt=0)
    """One forward-backward call."""

    step_s: float = Field(default=600.0, gt=0)
    """One optimizer step."""

    save_s: float = Field(default=1800.0, gt=0)
    """A checkpoint to be written."""

    shutdown_s: float = Field(default=15.0, gt=0)
    """Everything to be stopped at the end, or after SIGINT or SIGTERM."""


class DeadlineConfig(TrainerDeadlineConfig):
    preflight_s: float = Field(default=300.0, gt=0)
    """The first task to be built and graded by an agent that does nothing."""

    sandbox_start_s: float = Field(default=600.0, gt=0)
    """A rollout's sandbox to start, its image built if need be."""

    agent_s: float = Field(default=1200.0, gt=0)
    """The agent's part of a rollout. A task's own shorter limit wins."""

    verifier_s: float = Field(default=600.0, gt=0)
    """The verifier's part of a rollout. A task's own shorter limit wins."""

    sampling_call_s: float = Field(default=600.0, gt=0)
    """One turn to be sampled; as long may a call wait for a place at the sampler before."""

    save_on_stop_s: float = Field(default=120.0, gt=0)
    """With `trainer.save_on_stop`, the checkpoint to be written after SIGINT or SIGTERM."""

    weight_sync_s: float = Field(default=600.0, gt=0)
    """New weights to be confirmed by the sampler."""


class RunConfig(Section):
    """A whole run, as in a TOML file."""

    trainer: TrainerConfig = TrainerConfig()
    generator: GeneratorConfig = GeneratorConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    agent: AgentConfig = AgentConfig()
    sandbox: SandboxConfig = SandboxConfig()
    service: ServiceConfig = ServiceConfig()
    deadlines: DeadlineConfig = DeadlineConfig()
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    warm_start: list[WarmStartStage] = []
    """Supervised fine-tuning before reinforcement learning, stage by stage, through the same API."""

    @model_validator(mode="after")
    def _required_values(self) -> Self:
        if not self.trainer.policy.model.path:
            raise ValueError("trainer.policy.model.path is required: a hub id or a local model folder")
        if not self.data.train:
            raise ValueError("data.train is required: Harbor task directories, or directories of them")
        if self.generator.sampling_params.temperature == 0:
            raise ValueError("generator.sampling_params.temperature is 0: greedy rollouts of a group are all alike")
        return self
