"""Bodies and answers of the training API as pydantic models.

Job and save bodies keep unknown keys (clients of the hosted service send and expect back more than this project
reads). Sampling parameters do not: a parameter that no engine reads would change nothing without a word, so an
unknown one is refused by name. Models are the service's face; the client parses its hot paths without them.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from drydock.wire.status import JobStatus, RequestStatus, SubJobStatus


class OpenModel(BaseModel):
    """Base of models that keep the keys they do not know."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ClosedModel(BaseModel):
    """Base of models that refuse the keys they do not know."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest(cls, data: object) -> object:
        if isinstance(data, dict):
            for key, value in data.items():
                if key not in cls.model_fields and value is not None:
                    nearest = get_close_matches(str(key), cls.model_fields, n=1)
                    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
                    raise ValueError(f"unknown key {key!r}{hint}")
        return data


INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1

RESERVED_JOB_IDS = ("capacity", "signed", "usage", "whoami")
"""Names that are paths of the API beside the jobs."""


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


JobType = Annotated[Literal["training", "sampling", "log_probability"], BeforeValidator(_lower)]
CheckpointType = Annotated[Literal["resumable", "weights-only"], BeforeValidator(_lower)]

ID_SEGMENT: dict[str, str] = {"training": "training", "sampling": "sampling", "log_probability": "log_prob"}
"""Job type to the middle segment of a sub-job id."""


def sub_job_id(job_id: str, job_type: str, index: int) -> str:
    """`{job_id}:{training|sampling|log_prob}:{index}`, the id of a job's sub-job."""
    return f"{job_id}:{ID_SEGMENT[job_type]}:{index}"


class SourceCheckpoint(OpenModel):
    """The checkpoint that a sub-job starts from instead of the model's own weights; its job may be over."""

    checkpoint_id: str = Field(min_length=1, max_length=128)
    source_job_id: str = Field(min_length=1, max_length=128)


class SubJobConfig(OpenModel):
    """One sub-job as asked for: a model and either a training or an inference block."""

    job_type: JobType
    model_name: str = Field(min_length=1)
    training_config: dict[str, Any] | None = None
    inference_config: dict[str, Any] | None = None
    global_batch_size: int | None = None
    dtype: str | None = None
    seed: int | None = Field(default=None, ge=0, le=INT64_MAX)
    source_checkpoint_info: SourceCheckpoint | None = None

    @model_validator(mode="after")
    def _one_block(self) -> "SubJobConfig":
        wanted, other = "inference_config", "training_config"
        if self.job_type == "training":
            wanted, other = other, wanted
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise ValueError(f"a {self.job_type} sub-job needs {wanted} and no {other}")
        return self


class JobCreate(OpenModel):
    """Body of job creation. Without `job_id` the server assigns one; a job id holds no ':' and no '/'."""

    sub_job_configs: list[SubJobConfig] = Field(min_length=1)
    job_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    experiment_name: str | None = None
    hardware: str | None = None
    idle_timeout_seconds: int | None = None
    pending_timeout_seconds: int | None = None
    comment: str | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _limits(self) -> "JobCreate":
        if self.job_id in RESERVED_JOB_IDS:
            raise ValueError(f"job_id {self.job_id!r} is reserved: it is a path of the API")
        if sum(config.job_type == "training" for config in self.sub_job_configs) > 1:
            raise ValueError("sub_job_configs holds more than one training sub-job; at most one is allowed")
        return self


FINISHED = "finished"
"""How the reason begins with which a client cancels a job that has done its work."""


class CancelBody(OpenModel):
    """Body of a job's cancelling; may be empty. `reason` is kept as the job's reason."""

    reason: str | None = Field(default=None, min_length=1, max_length=500)


class SubJob(OpenModel):
    """One sub-job of a job; the configuration it was created with is echoed back."""

    sub_job_id: str
    job_type: str
    status: Annotated[SubJobStatus, BeforeValidator(SubJobStatus.parse)] = SubJobStatus.PENDING
    model_name: str | None = None
    training_config: dict[str, Any] | None = None
    inference_config: dict[str, Any] | None = None
    global_batch_size: float | None = None
    dtype: str | None = None
    seed: float | None = None


class Job(OpenModel):
    """A job as the service tells it. Times are ISO-8601; `reason` says why it ended."""

    job_id: str
    status: Annotated[JobStatus, BeforeValidator(JobStatus.parse)] = JobStatus.PENDING
    reason: str | None = None
    comment: str | None = None
    name: str | None = None
    experiment_name: str | None = None
    hardware: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    sub_jobs: list[SubJob] = []

    @property
    def finished(self) -> bool:
        """Whether its client cancelled it because its work was done."""
        return self.status is JobStatus.CANCELLED and (self.reason or "").startswith(FINISHED)


class Capacity(OpenModel):
    """GPUs of the account; `max_total_gpus` -1 means none set, 0 means zero allowed."""

    has_reservation: bool = False
    max_total_gpus: int = 0
    reserved_gpus: int = 0
    in_use_gpus: int = 0
    pending_gpus: int = 0
    available_gpus: int = 0


MAX_TOP_LOGPROBS = 20
MAX_SAMPLES = 128


class SamplingParams(ClosedModel):
    """How to sample the completion, or the `n` completions, of one prompt.

    Log-probs are those of softmax(logits / temperature), before anything below bends it: what a trainer can recompute.

    temperature 0 is greedy; top_k -1 (or 0) is off; min_p keeps tokens at least that likely, relative to the likeliest.
    repetition_penalty divides (positive) or multiplies (negative) logits of tokens in the prompt or the completion;
    frequency_penalty and presence_penalty lower those of tokens in the completion; logit_bias is added, by token id.
    stop: strings, left out of `text` (unless `include_stop_str_in_output`), while the token ids end with the token that
    completed one. min_tokens: no end before that many. ignore_eos: the model's own ends do not end a completion.
    seed: sample k of a prompt is drawn from (seed, k), whatever else runs beside it.
    logprobs: None returns none, 0 the sampled token's, k > 0 those of the k likeliest as well; prompt_logprobs: the
    same for the prompt's tokens. `compact_logprobs` returns the sampled tokens' as a plain list of floats.
    skip_special_tokens: leave special tokens out of `text` (the one that ended the completion always is).
    adapter: a named LoRA adapter that the sampler holds; None is the policy, "base" the model without any.
    `dss_sample_id` is a caller's label, echoed nowhere.
    """

    max_tokens: int = Field(default=16, ge=1, le=INT32_MAX)
    min_tokens: int = Field(default=0, ge=0, le=INT32_MAX)
    n: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    temperature: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=-1, ge=-1, le=INT32_MAX)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=100.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    logit_bias: dict[int, Annotated[float, Field(ge=-100.0, le=100.0)]] = {}
    stop: list[Annotated[str, Field(min_length=1)]] = []
    stop_token_ids: list[int] = []
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    seed: int | None = Field(default=None, ge=0, le=INT64_MAX)
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    ignore_eos: bool = False
    compact_logprobs: bool = False
    adapter: str | None = Field(default=None, min_length=1)
    dss_sample_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _loose_spellings(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        fields = {key: value for key, value in data.items() if value is not None or key in ("seed", "logprobs")}
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]
        return fields

    @model_validator(mode="after")
    def _limits(self) -> "SamplingParams":
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is more than max_tokens {self.max_tokens}")
        return self


def _prompt_lists(value: object) -> object:
    """Arrays become lists, and one flat list of ids becomes a list of one prompt."""
    if hasattr(value, "tolist"):
        value = cast("Any", value).tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        return value
    if isinstance(value[0], int):
        return [value]
    return [cast("Any", prompt).tolist() if hasattr(prompt, "tolist") else prompt for prompt in value]


class GenerateBody(BaseModel):
    """Body of generate: one result per prompt, in order. Token prompts are used as they are.

    `sampling_params` and `routing_key` are one for all prompts or a list with one entry per prompt.
    """

    prompts: Annotated[list[str | list[int]], BeforeValidator(_prompt_lists)]
    sampling_params: SamplingParams | list[SamplingParams | None] | None = None
    routing_key: str | list[str | None] | None = None
    strict: bool = False

    @model_validator(mode="after")
    def _lengths(self) -> "GenerateBody":
        for name in ("sampling_params", "routing_key"):
            value = getattr(self, name)
            if isinstance(value, list) and len(value) != len(self.prompts):
                raise ValueError(f"{name} has {len(value)} entries for {len(self.prompts)} prompts")
        return self

    def params_of(self, index: int) -> SamplingParams:
        """Sampling parameters of the prompt at `index`."""
        params = self.sampling_params
        return (params[index] if isinstance(params, list) else params) or SamplingParams()

    def routing_key_of(self, index: int) -> str | None:
        """Routing key of the prompt at `index`."""
        return self.routing_key[index] if isinstance(self.routing_key, list) else self.routing_key


class StepBody(OpenModel):
    """Body of step; `learning_rate` replaces the optimizer's from this step on."""

    learning_rate: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)


class SaveBody(OpenModel):
    """Body of save."""

    checkpoint_id: str | None = None
    checkpoint_type: CheckpointType = "resumable"
    merge: bool = False
    """Of a job that trains an adapter: write the whole model with the adapter added in (weights-only)."""


class OperationBody(OpenModel):
    """Body of the generic operation route."""

    operation_type: str
    sub_job_id: str | None = None
    sub_job_type: str | None = None
    payload: dict[str, Any] | None = None


class WeightSyncPayload(OpenModel):
    """Payload of the weight-sync operation."""

    source_sub_job_id: str
    target_sub_job_ids: list[str] = Field(min_length=1)
    weight_format: str | None = None


class RequestState(OpenModel):
    """A data-plane request as polled, or as a held POST answers it. Times are ISO-8601.

    `next_cursor` is non-empty only while more pages of `events` follow.
    """

    request_id: str
    job_id: str
    status: Annotated[RequestStatus, BeforeValidator(RequestStatus.parse)] = RequestStatus.PENDING
    created_at: str | None = None
    updated_at: str | None = None
    result: dict[str, Any] | None = None
    error: str | None = None
    events: list[dict[str, Any]] = []
    next_cursor: str | None = None
