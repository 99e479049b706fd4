"""The SDK's LLM object, pinned so that a request holds what Drydock decided and nothing else.

The SDK derives features from substrings of the model name: reasoning effort "high" for anything it takes for an OpenAI
model (which silently drops the sampling parameters), cache markers, the Responses API, list-shaped contents. So the
model travels under a neutral alias and every such switch is set explicitly. Sampling parameters are not sent at all:
the chat proxy knows them. One attempt per call: a retried call would sample twice; the driver retries whole rollouts.
"""

from functools import lru_cache
from typing import Any, Literal

from pydantic import SecretStr

from drydock.harness.connections import Connection
from drydock.harness.sdk import LLM
from drydock.harness.telemetry import SilentTelemetry
from drydock.harness.transport import DirectLLM

MODEL_ALIAS = "openai/policy"


class LitellmLLM(LLM):
    """The SDK's LLM as it ships, except that the OpenAI client below litellm makes one attempt instead of three."""

    def _prepare_transport_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        return {**super()._prepare_transport_kwargs(**kwargs), "max_retries": 0}


def policy_llm(connection: Connection, *, transport: Literal["direct", "litellm"], call_timeout_s: float) -> LLM:
    """Make the LLM of one rollout; it shares everything but the key with the others of the same endpoint."""
    template = _template(connection.base_url.rstrip("/"), transport, max(1, round(call_timeout_s)))
    llm = template.model_copy(update={"api_key": SecretStr(connection.api_key)})
    if isinstance(llm, DirectLLM):
        llm._answer = connection.answer
    return llm


@lru_cache(maxsize=8)
def _template(base_url: str, transport: Literal["direct", "litellm"], timeout_s: int) -> LLM:
    kind = DirectLLM if transport == "direct" else LitellmLLM
    llm = kind(
        model=MODEL_ALIAS,
        base_url=base_url,
        api_key=SecretStr("set per rollout"),
        api_mode="chat",
        timeout=timeout_s,
        num_retries=1,
        reasoning_effort=None,
        capability_overrides={
            "supports_reasoning_effort": False,
            "supports_sampling_params": True,
            "supports_prompt_cache": False,
            "supports_vision": False,
        },
        force_string_serializer=True,
        caching_prompt=False,
        disable_vision=True,
        native_tool_calling=True,
        stream=False,
        log_completions=False,
        usage_id="policy",
    )
    llm._telemetry = SilentTelemetry(model_name=MODEL_ALIAS, metrics=llm.metrics)
    return llm
