"""What the proxy needs of whatever samples: token ids in, one turn out.

A fake in a test is a class with one method; the training service is behind `drydock.proxy.service_sampler`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drydock.wire.rest import SamplingParams


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One sampled assistant turn, exactly as the sampler produced it.

    sampled_ids: the tokens it emitted, stop token included when it emitted one.
    logprobs: natural log, one per sampled id (own-token), under the policy at `policy_version` (None: not told).
    finish_reason: `stop` or `length`.
    text: the sampler's own decoding; the proxy decodes `sampled_ids` itself and uses this for nothing.
    """

    sampled_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: int | None
    finish_reason: str
    text: str


class Sampler(Protocol):
    """Continues a prompt of token ids by one turn."""

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        """Sample one turn; raises on failure. `routing_key` is equal for all calls of a rollout (cache affinity)."""
        ...
