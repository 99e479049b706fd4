"""Bodies and answers of the training API as pydantic models.

Job and save bodies keep unknown keys (clients of the hosted service send and expect back more than this project
reads). Sampling parameters do not: a parameter that no engine reads would change nothing without a word, so an
unknown one is refused by name. Models are the service's face; the client parses its hot paths without them.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from drydock.wire.status import JobStatus, RequestStatus, SubJobStatus


class OpenModel(BaseModel):
    """Base of models that keep the keys they do not know."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ClosedModel(BaseModel):
    """Base of models that refuse the keys they do not know."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


JobType = Annotated[Literal["training", "sampling", "log_probability"], BeforeValidator(_lower)]
CheckpointType = Annotated[Literal["resumable", "weights-only"], BeforeValidator(_lower)]

ID_SEGMENT: dict[str, str] = {"training": "training", "sampling": "sampling", "log_probability": "log_prob"}
"""Job type to the middle segment of a sub-job id."""


def sub_job_id(job_id: str, job_type: str, index: int) -> str:
    """`{job_id}:{training|sampling|log_prob}:{index}`, the id of a job's sub-job."""
    return f"{job_id}:{ID_SEGMENT[job_type]}:{index}"


class SubJobConfig(OpenModel):
    """One sub-job as asked for: a model and either a training or an inference block."""

    job_type: JobType
    model_name: str = Field(min_length=1)
    training_config: dict[str, Any] | None = None
    inference_config: dict[str, Any] | None = None
    global_batch_size: int | None = None
    dtype: str | None = None
    seed: int | None = None

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

    @model_validator(mode="after")
    def _limits(self) -> "JobCreate":
        if self.job_id == "capacity":
            raise ValueError("job_id 'capacity' is reserved: it is a path of the API")
        if sum(config.job_type == "training" for config in self.sub_job_configs) > 1:
            raise ValueError("sub_job_configs holds more than one training sub-job; at most one is allowed")
        return self


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
    experiment_name: str | None = None
    hardware: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    sub_jobs: list[SubJob] = []


class Capacity(OpenModel):
    """GPUs of the account; `max_total_gpus` -1 means none set, 0 means zero allowed."""

    has_reservation: bool = False
    max_total_gpus: int = 0
    reserved_gpus: int = 0
    in_use_gpus: int = 0
    pending_gpus: int = 0
    available_gpus: int = 0


class SamplingParams(ClosedModel):
    """How to sample one completion.

    temperature 0 is greedy; top_k -1 (or 0) is off; `logprobs` None returns none, 0 the sampled token's only;
    `compact_logprobs` returns them as a plain list of floats; `dss_sample_id` is a caller's label, echoed nowhere.
    """

    max_tokens: int = Field(default=16, ge=1)
    temperature: float = Field(default=1.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=-1, ge=-1)
    stop: list[str] = []
    stop_token_ids: list[int] = []
    seed: int | None = None
    logprobs: int | None = Field(default=None, ge=0)
    ignore_eos: bool = False
    compact_logprobs: bool = False
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

    learning_rate: float | None = Field(default=None, ge=0.0)


class SaveBody(OpenModel):
    """Body of save."""

    checkpoint_id: str | None = None
    checkpoint_type: CheckpointType = "resumable"


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
