"""Forward-backward requests with rows that share prefixes the way rollouts do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Row = tuple[list[int], list[int]]


def grouped_rows(
    rng: np.random.Generator,
    *,
    groups: int = 3,
    group_size: int = 4,
    system: int = 40,
    prompt: int = 30,
    response: int = 20,
    vocab: int = 390,
) -> list[Row]:
    """Rows (token ids, own-token mask): one system prompt for all, one prompt a group, ragged responses."""
    head = rng.integers(0, vocab, system)
    rows: list[Row] = []
    for _ in range(groups):
        start = np.concatenate([head, rng.integers(0, vocab, prompt)])
        for _ in range(group_size):
            length = int(rng.integers(1, response + 1))
            ids = np.concatenate([start, rng.integers(0, vocab, length)])
            rows.append((ids.tolist(), [0] * len(start) + [1] * length))
    return rows


def request_of(
    rows: Sequence[Row],
    *,
    loss_fn: str = "grpo",
    config: dict[str, Any] | None = None,
    advantages: Sequence[float] | None = None,
    old_logprobs: Sequence[Sequence[float]] | None = None,
    row_weights: Sequence[float] | None = None,
    width: int | None = None,
    post: Sequence[str] = (),
    pad_id: int = 0,
) -> dict[str, Any]:
    """A padded request. advantages: one a row. old_logprobs: own-token, one list a row."""
    width = max(len(ids) for ids, _ in rows) if width is None else width
    shape = (len(rows), width)
    ids = np.full(shape, pad_id, np.int64)
    attention = np.zeros(shape, np.int64)
    mask, scores, old = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for index, (tokens, own_mask) in enumerate(rows):
        ids[index, : len(tokens)] = tokens
        attention[index, : len(tokens)] = 1
        mask[index, : len(tokens) - 1] = own_mask[1:]
        scores[index] = 1.0 if advantages is None else advantages[index]
        if old_logprobs is not None:
            old[index, : len(tokens) - 1] = old_logprobs[index][1:]
    context: dict[str, NDArray[Any]] = {"loss_mask": mask}
    if loss_fn == "grpo":
        context["advantages"] = scores
        if old_logprobs is not None:
            context["old_log_probs_shifted"] = old
    if row_weights is not None:
        context["sequence_loss_weights"] = np.asarray(row_weights, float)
    return {
        "args": (),
        "kwargs": {"input_ids": ids, "attention_mask": attention},
        "context": context,
        "processing": {"loss_fn": loss_fn, "config": config or {}, "post": list(post)},
    }
