"""What every sampling engine offers; which one runs is configuration."""

from pathlib import Path
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from drydock.engine.types import SampleResult, WeightSet
from drydock.wire.rest import SamplingParams


class SamplingEngine(Protocol):
    """Requests go in by `submit`, results come out of `step`; nothing runs in between. Not thread-safe."""

    tokenizer: PreTrainedTokenizerBase
    policy_version: int
    fingerprint: str

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do or to return."""
        ...

    def submit(
        self, request_id: str, prompt_ids: list[int], params: SamplingParams, routing_key: str | None = None
    ) -> None:
        """Queue a request. Raises UserError for a prompt that cannot be sampled from."""
        ...

    def step(self) -> list[SampleResult]:
        """Admit waiting requests, sample one token for each running one, return those that finished."""
        ...

    def abort(self, request_id: str) -> bool:
        """End a request early; the next `step` returns what it has with finish_reason abort. False if unknown."""
        ...

    def load_weights(self, path: Path, *, policy_version: int, fingerprint: str) -> WeightSet:
        """Replace the policy. Raises EngineError when the file does not have that fingerprint."""
        ...

    def reset_prefix_cache(self) -> None:
        """Forget keys and values of finished requests."""
        ...
