"""What every sampling engine offers; which one runs is configuration."""

from pathlib import Path
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from drydock.engine.types import SamplePiece, SampleResult, WeightSet
from drydock.wire.rest import SamplingParams


class SamplingEngine(Protocol):
    """Requests go in by `submit`, results come out of `step`; nothing runs in between. Not thread-safe."""

    tokenizer: PreTrainedTokenizerBase
    policy_version: int

    @property
    def fingerprint(self) -> str:
        """Of the policy that was loaded last."""
        ...

    @property
    def adapters(self) -> dict[str, str]:
        """Named adapters and their fingerprints."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do or to return."""
        ...

    def submit(
        self,
        request_id: str,
        prompt_ids: list[int],
        params: SamplingParams,
        routing_key: str | None = None,
        *,
        streamed: bool = False,
    ) -> None:
        """Queue a request for `params.n` samples. Raises UserError for a prompt that cannot be sampled from."""
        ...

    def step(self) -> list[SampleResult]:
        """Admit waiting requests, sample one token for each running one, return the samples that finished.

        What goes wrong for one request is its result (finish reason `error`); only what concerns all is raised.
        """
        ...

    def take_pieces(self) -> list[SamplePiece]:
        """What the running streamed requests gained since they were last asked."""
        ...

    def abort(self, request_id: str) -> bool:
        """End a request early; the next `step` returns what it has with finish_reason abort. False if unknown."""
        ...

    def load_weights(self, path: Path, *, policy_version: int, fingerprint: str) -> WeightSet:
        """Replace the policy. Raises EngineError when the file does not have that fingerprint."""
        ...

    def load_adapter(self, name: str, path: Path) -> str:
        """Hold the adapter in `path` under `name`; its fingerprint. Raises UserError or EngineError when it cannot."""
        ...

    def drop_adapter(self, name: str) -> bool:
        """Forget a named adapter; False when there is none of that name."""
        ...

    def reset_prefix_cache(self) -> None:
        """Forget keys and values of finished requests."""
        ...
