"""A chat proxy that runs while a test needs it, and a sampler that fails."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, SampledTurn, Sampler
from drydock.wire.rest import SamplingParams

Running = Callable[..., AbstractAsyncContextManager[ChatProxy]]
"""A sampler, and settings that differ."""


def running_with(template: ChatTemplate) -> Running:
    """Proxies with this template and Hermes calls."""

    @asynccontextmanager
    async def run(sampler: Sampler, **settings: object) -> AsyncIterator[ChatProxy]:
        chosen = {"context_tokens": 4000, "max_new_tokens": 400, **settings}
        async with ChatProxy(template, HermesParser(), sampler, ProxySettings.model_validate(chosen)) as proxy:
            yield proxy

    return run


class FailingSampler:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.count = 0

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        self.count += 1
        raise self.error
