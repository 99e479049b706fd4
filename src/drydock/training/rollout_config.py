"""The sections of a run's configuration that say what a rollout is: sampling, reward, agent, sandbox."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from drydock.harness.settings import AGENT_CLASS, COMMAND_TIMEOUT_S, LEAST_OUTPUT_CHARS, MAX_OUTPUT_CHARS
from drydock.harness.tool_schemas import DEFAULT_TOOLS
from drydock.training.section import Section

ToolCallFormat = Literal["deepseek", "glm", "harmony", "hermes", "llama_json", "mistral", "qwen_xml"]


class SamplingConfig(Section):
    max_generate_length: int = Field(default=8192, gt=0)
    """Tokens sampled at most in one turn."""

    temperature: float = Field(default=1.0, ge=0)
    """Softmax temperature; 0 is greedy and for evaluation only."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 is off. Below 1 the recorded log-probs are those before truncation."""

    top_k: int = Field(default=-1, ge=-1)
    """Sample among the k most likely tokens; -1 is off."""


class GeneratorConfig(Section):
    n_samples_per_prompt: int = Field(default=8, gt=0)
    """Rollouts of each task in a step: the group's size."""

    eval_n_samples_per_prompt: int = Field(default=1, gt=0)
    """Rollouts of each task in an evaluation."""

    max_turns: int = Field(default=10, gt=0)
    """Turns of the agent at most in one rollout."""

    max_input_length: int = Field(default=40960, gt=0)
    """Context of a rollout in tokens: prompt and everything sampled."""

    thinking: Literal["keep", "template"] = "keep"
    """The policy's thinking of earlier turns: keep it as it was sampled, or show history as the chat template does,
    which starts a branch at each user message where the template hides it."""

    tool_call_format: ToolCallFormat | None = None
    """How the policy writes tool calls. Default: as its chat template writes them."""

    num_parallel_generation_workers: int = Field(default=16, gt=0)
    """Rollouts that run at the same time."""

    rollouts_per_process: int = Field(default=64, gt=0)
    """Rollouts that one process runs at the same time at most. More than that are spread evenly over as many processes
    (shards) as it takes; otherwise the driver runs them itself."""

    max_concurrent_calls: int = Field(default=256, gt=0)
    """Chat calls of all rollouts that are at the sampler at the same time; others wait, rollouts taking turns."""

    unsubmitted: Literal["mask", "grade"] = "mask"
    """A rollout that ran out of turns or context without submitting: leave it out, or train its verifier's reward."""

    replacement_share: float = Field(default=0.25, ge=0)
    """Fresh rollouts that may replace broken ones in a step or evaluation, as a share of its rollouts; 0: none."""

    replacements_per_rollout: int = Field(default=2, ge=0)
    """How often one rollout is replaced at most."""

    oversample_share: float = Field(default=0.0, ge=0)
    """Further groups started in a step, as a share of its tasks. It goes on with those that are complete first; the
    others are cancelled, and their tasks come again."""

    quorum: float = Field(default=1.0, gt=0, le=1)
    """Share of the step's groups with which it goes on; the others are cancelled, and their tasks come again."""

    refill_rounds: int = Field(default=3, ge=1)
    """How often a step is filled up at most with further tasks where `trainer.algorithm.dynamic_filtering` is on."""

    seeded_sampling: bool = True
    """Send a seed with each turn, made of `trainer.seed`, the rollout's id and the turn's number, so that a run that is
    resumed or repeated samples alike; otherwise the service draws as it likes."""

    sampling_params: SamplingConfig = SamplingConfig()
    eval_sampling_params: SamplingConfig | None = None
    """Sampling in evaluations. Default: as in training, also for single keys that are left out."""

    @property
    def eval_sampling(self) -> SamplingConfig:
        """How evaluations sample."""
        return self.eval_sampling_params or self.sampling_params

    @model_validator(mode="after")
    def _evaluations_sample_as_training_does(self) -> Self:
        if self.eval_sampling_params is not None:
            given = self.eval_sampling_params.model_dump(exclude_unset=True)
            self.eval_sampling_params = self.sampling_params.model_copy(update=given)
        return self


class RewardConfig(Section):
    key: str = Field(default="reward", min_length=1)
    """Which number of reward.json is the reward; the one of reward.txt is named `reward`."""

    weights: dict[str, float] = {}
    """Numbers of reward.json by name: the reward is their sum, each times its weight, instead of `key`."""

    lowest: float | None = Field(default=None, allow_inf_nan=False)
    """Least reward that a task may give."""

    highest: float | None = Field(default=None, allow_inf_nan=False)
    """Greatest reward that a task may give."""

    out_of_range: Literal["mask", "clip"] = "mask"
    """A reward below `lowest` or above `highest`: leave the rollout out, or take the end of the range."""


class AgentConfig(Section):
    import_path: str = AGENT_CLASS
    """Driver-side Harbor agent, `module:Class`, or the environment variable HARBOR_AGENT."""

    kwargs: dict[str, object] = {}
    """Keyword arguments of another agent than the default one, which takes the keys below instead."""

    tools: list[str] = list(DEFAULT_TOOLS)
    """The agent's tools: terminal or persistent_terminal, file_editor, think, task_tracker, finish, `module:Class`; or
    the environment variable OPENHANDS_TOOLS, joined by commas."""

    system_prompt_file: Path | None = None
    """System prompt, word for word, or a Jinja template (`.j2`) that sees `tools` and `max_turns`; or the environment
    variable OPENHANDS_SYSTEM_PROMPT_FILE. Default: the short one of Drydock."""

    skills: list[Path] = []
    """SKILL.md files, or folders with one, that are listed in the prompt and put into the sandbox; or the environment
    variable HARBOR_SKILL, joined by colons."""

    max_sampled_tokens: int | None = Field(default=None, gt=0)
    """Tokens that a rollout may sample in all its turns; looked at before each turn. Default: no limit."""

    max_seconds: float | None = Field(default=None, gt=0)
    """Seconds after which no further turn is begun; `deadlines.agent_s` cuts off instead. Default: no limit."""

    condense_after_events: int | None = Field(default=None, ge=10)
    """Events of a conversation after which the policy is asked to sum the older half up. Default: never."""

    transport: Literal["direct", "litellm"] = "direct"
    """How the SDK's chat calls reach the proxy: one shared HTTP client, or the SDK's own litellm path (slower)."""

    command_timeout_s: float = Field(default=COMMAND_TIMEOUT_S, gt=0)
    """Limit of one shell command."""

    max_output_chars: int = Field(default=MAX_OUTPUT_CHARS, ge=LEAST_OUTPUT_CHARS)
    """What the agent sees of a command's output at most; the middle is cut."""

    @property
    def without_effect(self) -> list[str]:
        """Keys that say something of their own and that the chosen agent never sees: of another agent than the default
        one all but its `kwargs`, of the default one these."""
        if self.import_path == AGENT_CLASS:
            return ["kwargs"] if self.kwargs else []
        default = AgentConfig()
        of_default_agent = [key for key in type(self).model_fields if key not in ("import_path", "kwargs")]
        return [key for key in of_default_agent if getattr(self, key) != getattr(default, key)]


class SandboxConfig(Section):
    environment: str = "local"
    """`local`, `host` (trusted tasks only), a name of Harbor's, or `module:Class`."""

    kwargs: dict[str, object] = {}
    """Keyword arguments of the environment."""

    state_dir: Path | None = None
    """Where sandboxes keep their files; or the environment variable OPENHANDS_WORKSPACE, with which the local sandbox
    keeps what is written in it there too. Default: below the user's state directory."""

    pass_env: list[str] = []
    """Environment variables of the driver that a task's `task.toml` may read as `${NAME}`; others are refused."""
