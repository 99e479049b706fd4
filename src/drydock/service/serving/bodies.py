"""Bodies of chat completions and completions. What would change the answer and is not served is refused by name."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from drydock.chat import RequestRefused
from drydock.wire.rest import INT32_MAX, INT64_MAX, MAX_SAMPLES, MAX_TOP_LOGPROBS, SamplingParams

_SAME = (
    "n",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "include_stop_str_in_output",
)
"""Fields that sampling parameters have under the same name."""


class StreamOptions(BaseModel):
    """include_usage: end the stream with a chunk that tells the tokens used."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False
    include_obfuscation: bool = False


class SampledBody(BaseModel):
    """What both kinds of call can ask of sampling.

    prompt_cache_key: calls with the same one go to the same replica, where their common prefix is kept. The last group
    is accepted and changes nothing.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    max_tokens: int | None = Field(default=None, ge=1, le=INT32_MAX)
    temperature: float | None = Field(default=None, ge=0.0, le=1000.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    n: int | None = Field(default=None, ge=1, le=MAX_SAMPLES)
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: str | None = None

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None

    def sampling(self, *, adapter: str | None, logprobs: int | None, max_tokens: int) -> SamplingParams:
        """Sampling parameters of the call. Special tokens are spelt, as a tool-call parser needs them."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        fields = {name: getattr(self, name) for name in _SAME if getattr(self, name) is not None}
        try:
            return SamplingParams.model_validate(
                {
                    **fields,
                    "max_tokens": self.max_tokens or max_tokens,
                    "temperature": 1.0 if self.temperature is None else self.temperature,
                    "stop": stop or [],
                    "seed": None if self.seed is None else self.seed & INT64_MAX,
                    "logprobs": logprobs,
                    "compact_logprobs": logprobs is not None,
                    "skip_special_tokens": False,
                    "adapter": adapter,
                }
            )
        except ValidationError as error:
            raise refused(error) from None


class ChatBody(SampledBody):
    """Body of a chat completion; `messages` are read by `drydock.chat`."""

    messages: list[Any] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=INT32_MAX)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    @model_validator(mode="after")
    def _served(self) -> "ChatBody":
        if self.tool_choice not in (None, "auto", "none"):
            raise ValueError("tool_choice must be 'auto' or 'none': sampling is not constrained")
        if self.response_format is not None and self.response_format.get("type") != "text":
            raise ValueError("response_format must be of type 'text': sampling is not constrained")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs true")
        for place, tool in enumerate(self.tools or ()):
            function = tool.get("function")
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise ValueError(f"tools[{place}] must be a function with a name")
        self.max_tokens = min(filter(None, (self.max_tokens, self.max_completion_tokens)), default=None)
        return self


class CompletionBody(SampledBody):
    """Body of a completion. Text prompts are read as they stand: no special token is added."""

    prompt: str | Annotated[list[int], Field(min_length=1)] | list[str] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: Literal[False] | None = None
    best_of: int | None = None
    suffix: None = None

    @model_validator(mode="after")
    def _served(self) -> "CompletionBody":
        if self.best_of not in (None, self.n or 1):
            raise ValueError("best_of must be n: completions are not ranked")
        if not self.prompts():
            raise ValueError("prompt is empty")
        return self

    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [part for part in self.prompt if isinstance(part, int)]
        return [ids] if ids else [part for part in self.prompt if not isinstance(part, int)]


def read[Body: BaseModel](model: type[Body], data: bytes) -> Body:
    """A body, checked. Raises RequestRefused naming the field."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise refused(error) from None


def refused(error: ValidationError) -> RequestRefused:
    """The refusal that names the first offending field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"]) or None
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "is not supported by this endpoint; leave it out"
    return RequestRefused(f"{param} {message}" if param else message, param=param)
