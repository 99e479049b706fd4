"""What the client's calls return, read from the answers of our service and of the hosted one.

Fields that only our service reports (`policy_version`, `fingerprint`) are None where the server is silent, never
guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.errors import ServiceError


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled completion.

    token_ids: sampled ids, stop token included when it was emitted.
    logprobs: natural log of each sampled id, aligned with `token_ids`; empty when none were asked for.
    finish_reason: "stop", "length" or "abort". policy_version: of the weights that sampled it.
    top_logprobs: per sampled token the likeliest tokens' by id, where `logprobs` asked for more than the sampled ones.
    prompt_logprobs: one per prompt token, None for the first; prompt_top_logprobs: as top_logprobs.
    samples: all completions of the prompt, this one first, where `n` asked for several.
    """

    text: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    policy_version: int | None
    top_logprobs: list[dict[int, float]] = field(default_factory=list)
    prompt_logprobs: list[float | None] = field(default_factory=list)
    prompt_top_logprobs: list[dict[int, float] | None] = field(default_factory=list)
    samples: "list[Generation]" = field(default_factory=list)

    @classmethod
    def from_result(cls, item: Mapping[str, Any], *, with_logprobs: bool) -> "Generation":
        """Read one entry of "results". Raises ServiceError when its log-probs do not cover its tokens."""
        token_ids = _plain(item.get("token_ids")) or []
        logprobs = _token_logprobs(token_ids, _plain(item.get("logprobs")) or []) if with_logprobs else []
        return cls(
            text=item.get("text") or "",
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=item.get("finish_reason") or "stop",
            policy_version=_plain(item.get("policy_version")),
            top_logprobs=[_by_id(top) for top in item.get("top_logprobs") or ()],
            prompt_logprobs=list(item.get("prompt_logprobs") or ()),
            prompt_top_logprobs=[top and _by_id(top) for top in item.get("prompt_top_logprobs") or ()],
            samples=[cls.from_result(part, with_logprobs=with_logprobs) for part in item.get("samples") or ()],
        )


def read_generations(result: Mapping[str, Any], prompt_count: int, with_logprobs: bool) -> list[Generation]:
    """The completions of a generate result, one per prompt in order; ServiceError when their number differs."""
    items = result.get("results")
    if not isinstance(items, Sequence) or len(items) != prompt_count:
        raise ServiceError(f"{prompt_count} prompts did not give as many results: {str(items)[:200]}")
    return [Generation.from_result(item, with_logprobs=with_logprobs) for item in items]


@dataclass(frozen=True, slots=True)
class ForwardBackwardResult:
    """Loss and metrics of one forward-backward; gradients stay with the service.

    post_process_outputs: arrays that were asked for, [batch, seq] predict-next aligned (x[:, i] belongs to
    ids[:, i+1]); "logprobs" for the post "compute_logprobs".
    """

    avg_loss: float
    metrics: dict[str, float]
    post_process_outputs: dict[str, NDArray[Any]]

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> "ForwardBackwardResult":
        """Read a forward-backward result; log-probs are also found where other servers put them."""
        if "avg_loss" not in result:
            raise ServiceError("the forward-backward result has no avg_loss")
        outputs = {**(result.get("post_process_outputs") or {})}
        for place in (result.get("batch") or {}, result):
            if "logprobs" in place:
                outputs.setdefault("logprobs", place["logprobs"])
        return cls(
            avg_loss=float(_plain(result["avg_loss"])),
            metrics={name: _plain(value) for name, value in (result.get("metrics") or {}).items()},
            post_process_outputs={name: np.asarray(value) for name, value in outputs.items()},
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    """An optimizer step: number of steps so far, learning rate used, metrics such as grad_norm."""

    global_steps: int
    last_lr: float | None
    metrics: dict[str, Any]

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> "StepResult":
        """Read a step result; of several parameter groups' learning rates the first counts."""
        if "global_steps" not in result:
            raise ServiceError("the step result has no global_steps")
        rate = _plain(result.get("last_lr"))
        if isinstance(rate, Sequence):
            rate = rate[0] if rate else None
        metrics = {name: _plain(value) for name, value in (result.get("metrics") or {}).items()}
        return cls(int(_plain(result["global_steps"])), rate, metrics)


@dataclass(frozen=True, slots=True)
class SaveResult:
    """A saved checkpoint; `details` is the server's whole answer."""

    checkpoint_id: str
    details: dict[str, Any]

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> "SaveResult":
        """Read a save result; the id is taken from the stage path ("…/checkpoints/cp_…/…") where it is not given."""
        checkpoint_id = result.get("checkpoint_id")
        if not checkpoint_id:
            parts = str(result.get("stage_path") or "").split("/")
            checkpoint_id = next((part for part in parts if part.startswith("cp_")), None)
        if not checkpoint_id:
            raise ServiceError("the save result names no checkpoint")
        return cls(checkpoint_id, dict(result))


@dataclass(frozen=True, slots=True)
class WeightSync:
    """The weights that every target now samples with: their version and a hash of their names, shapes and bytes."""

    policy_version: int | None
    fingerprint: str | None
    details: dict[str, Any]

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> "WeightSync":
        """Read a weight-sync result."""
        return cls(_plain(result.get("policy_version")), result.get("fingerprint"), dict(result))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _by_id(top: Mapping[str, float]) -> dict[int, float]:
    return {int(token): logprob for token, logprob in top.items()}


def _token_logprobs(token_ids: list[int], entries: list[Any]) -> list[float]:
    if len(entries) != len(token_ids):
        raise ServiceError(f"the server sent {len(entries)} log-probs for {len(token_ids)} sampled tokens")
    if not entries or not isinstance(entries[0], Mapping):
        return entries
    logprobs = []
    for token_id, entry in zip(token_ids, entries, strict=True):
        value = _plain(entry.get(str(token_id)))
        value = _plain(value.get("logprob")) if isinstance(value, Mapping) else value
        if value is None:
            raise ServiceError(f"the server sent no log-prob for the sampled token {token_id}")
        logprobs.append(float(value))
    return logprobs
