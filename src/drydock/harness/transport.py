"""Chat calls of the SDK without the SDK's provider layers and litellm.

`DirectLLM` is the SDK's LLM with another completion: the SDK's own message formatting and tool schemas, the request
body that litellm would send, one attempt, and the exceptions that litellm would raise put through the SDK's
classification (full context, bad key, overload). What falls away is what a policy behind a chat proxy has no use for:
copies of the whole history before each call, options of other providers, retries, prices, and litellm's and openai's
clients. A message is made JSON once, not again in each later call.

Where the body goes: straight to the endpoint when it is in this process (`Connection.answer`), otherwise over one HTTP
client that all rollouts of the event loop share.
"""

import asyncio
import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from pydantic import PrivateAttr, SecretStr

from drydock.harness.connections import Answer
from drydock.harness.sdk import (
    LLM,
    LLMResponse,
    Message,
    MetricsSnapshot,
    ModelResponse,
    exceptions,
    map_provider_exception,
)

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()


def shared_client() -> httpx.AsyncClient:
    """The HTTP client of the running event loop, made on first use."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None or client.is_closed:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=120.0)
        client = _clients[loop] = httpx.AsyncClient(limits=limits, trust_env=False, timeout=None)
    return client


async def close_shared_client() -> None:
    """Close the running loop's client; the next call makes a new one."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


class DirectLLM(LLM):
    """The SDK's LLM with its own way to a chat-completions endpoint."""

    _answer: Answer | None = PrivateAttr(default=None)
    _sent: tuple[tuple[Message, str], ...] = PrivateAttr(default=())

    async def acompletion(
        self,
        messages: list[Message],
        tools: Sequence[Any] | None = None,
        add_security_risk_prediction: bool = False,
        on_token: Any = None,
        call_context: Any = None,
        **kwargs: Any,
    ) -> LLMResponse:
        body: dict[str, Any] = {"model": self.model.removeprefix("openai/")}
        if tools:
            body["tools"] = [tool.to_openai_tool() for tool in tools]
        if call_context is not None and call_context.prompt_cache_key:
            body["prompt_cache_key"] = call_context.prompt_cache_key
        try:
            rest = json.dumps(body).removesuffix("}")
            raw = await self._call(f'{rest}, "messages": [{", ".join(self._encoded(messages))}]}}'.encode())
        except Exception as error:
            mapped = map_provider_exception(error)
            if mapped is error:
                raise
            raise mapped from error
        message = Message.from_llm_chat_message(raw.choices[0].message)  # pyright: ignore[reportAttributeAccessIssue]
        return LLMResponse(message=message, metrics=NOTHING_MEASURED, raw_response=raw)

    def _encoded(self, messages: list[Message]) -> list[str]:
        """Each message as JSON; those that were sent before, the same objects in the same places, as they were then."""
        known = sum(1 for _ in takewhile(lambda pair: pair[0][0] is pair[1], zip(self._sent, messages, strict=False)))
        new = messages[known:]
        encoded = zip(new, map(json.dumps, self._to_chat_dicts(new)), strict=True)
        self._sent = (*self._sent[:known], *encoded)
        return [text for _, text in self._sent]

    async def _call(self, content: bytes) -> ModelResponse:
        """Send a request body; raises litellm's exceptions."""
        try:
            async with asyncio.timeout(self.timeout):
                status, reply = await (self._answer or self._post)(content)
        except TimeoutError as error:
            raise self._error(exceptions.Timeout, f"no reply within {self.timeout} s") from error
        except httpx.HTTPError as error:
            raise self._error(exceptions.APIConnectionError, f"{type(error).__name__}: {error}") from error
        if status != 200:
            kind = ERRORS.get(status, exceptions.InternalServerError)
            raise self._error(kind, f"HTTP {status}: {reply.decode(errors='replace')}")
        raw = ModelResponse(**json.loads(reply))
        if not raw.choices:
            raise self._error(exceptions.InternalServerError, "the reply holds no choice")
        return raw

    async def _post(self, content: bytes) -> tuple[int, bytes]:
        assert isinstance(self.api_key, SecretStr)
        reply = await shared_client().post(
            f"{self.base_url}/chat/completions",
            content=content,
            headers={
                "content-type": "application/json",
                "authorization": f"Bearer {self.api_key.get_secret_value()}",
            },
        )
        return reply.status_code, reply.content

    def _error(self, kind: type[Exception], message: str) -> Exception:
        return kind(message=message, model=self.model, llm_provider="openai")  # pyright: ignore[reportCallIssue]


NOTHING_MEASURED = MetricsSnapshot(model_name="policy")

ERRORS: dict[int, type[Exception]] = {
    400: exceptions.BadRequestError,
    401: exceptions.AuthenticationError,
    403: exceptions.AuthenticationError,
    404: exceptions.NotFoundError,
    413: exceptions.BadRequestError,
    422: exceptions.BadRequestError,
    429: exceptions.RateLimitError,
    503: exceptions.ServiceUnavailableError,
}
"""litellm's exception for a reply's status, which is what the SDK's error handling understands; 500 and above are
InternalServerError."""
