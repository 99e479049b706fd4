"""What every loss takes and gives back.

A loss is a pure function of the rows of one micro-batch. It never learns how the rows of a forward-backward call
were cut into micro-batches: the denominators of every mean are handed in, so the sum of the micro-batches' losses
(and of their gradients) is the loss (and gradient) of the whole call. A loss whose rows depend on one another says so
in the registry and is given all rows of the call at once.

All per-token tensors are predict-next aligned: `x[:, i]` belongs to `input_ids[:, i + 1]`.
"""

# ruff: noqa: F722, F821
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from drydock.errors import UserError

type Sent = Mapping[str, NDArray[Any]]
"""The context tensors of a whole call, by their names on the wire; what a loss checks before anything is computed."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Rows of one micro-batch, predict-next aligned. The name on the wire (`context`) stands behind each.

    Scores of the model under training, with gradient, natural log, 0 where `loss_mask` is 0:
    logprobs: of the next token. entropy: of the distribution over the vocabulary; only where the loss asks for it.
    candidate_logprobs: of the candidate tokens (`teacher_topk_ids_shifted`).

    As sent by the client, 0 where `loss_mask` is 0, None where not sent:
    loss_mask: weight of each position (0 or 1 for policy losses, any weight >= 0 for cross-entropy).
    advantages. old_logprobs: of the behaviour policy that sampled the tokens (`old_log_probs_shifted`).
    prox_logprobs: of the policy before this step's updates, by the trainer (`prox_logp_shifted`).
    ref_logprobs: of the reference model (`ref_log_probs_shifted`). teacher_logprobs (`teacher_log_probs_shifted`).
    teacher_candidate_logprobs (`teacher_topk_log_probs_shifted`).
    versions: policy version that sampled each token (`versions`). is_weights (`rollout_is_weights`).
    observation_mask: 1 on observation tokens with a cross-entropy term (`echo_observation_mask`).
    row_weights: factor of each row in the seq-mean-* modes and prompt-mean (`sequence_loss_weights`).
    prompt_tokens: trained tokens of all rows of the row's prompt (`prompt_token_counts`, or counted by
    `prompt_group_ids`). pair_ids, chosen: which rows form a preference pair, and which of the two won.
    """

    logprobs: Float[Tensor, "rows seq"]
    loss_mask: Float[Tensor, "rows seq"]
    advantages: Float[Tensor, "rows seq"] | None = None
    old_logprobs: Float[Tensor, "rows seq"] | None = None
    row_weights: Float[Tensor, "rows"] | None = None
    prox_logprobs: Float[Tensor, "rows seq"] | None = None
    ref_logprobs: Float[Tensor, "rows seq"] | None = None
    teacher_logprobs: Float[Tensor, "rows seq"] | None = None
    teacher_candidate_logprobs: Float[Tensor, "rows seq k"] | None = None
    versions: Float[Tensor, "rows seq"] | None = None
    is_weights: Float[Tensor, "rows seq"] | None = None
    observation_mask: Float[Tensor, "rows seq"] | None = None
    prompt_tokens: Float[Tensor, "rows"] | None = None
    pair_ids: Int[Tensor, "rows"] | None = None
    chosen: Float[Tensor, "rows"] | None = None
    entropy: Float[Tensor, "rows seq"] | None = None
    candidate_logprobs: Float[Tensor, "rows seq k"] | None = None


@dataclass(frozen=True, slots=True)
class Denominators:
    """What the means of one forward-backward call divide by, all micro-batches together.

    tokens: weight of all trained positions (or the client's `batch_num_tokens`).
    rows: number of rows that train anything, counted with their row weights (or `global_batch_size`).
    prompts: number of different prompts with a row that trains anything.
    row_width: padded width of the rows as the client sent them.
    scale: factor on the loss; the number of data-parallel ranks whose gradients are averaged.
    """

    tokens: float
    rows: float
    row_width: int
    scale: float = 1.0
    prompts: float = 1.0


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A micro-batch's share of the loss of its call, and what is reported about it.

    loss: scalar with gradient.
    means: name -> sum over trained positions; the caller divides by their number over the whole call.
    sums: name -> share that adds up over micro-batches and is reported as it is.
    maxima, minima: name -> extreme over trained positions.
    """

    loss: Tensor
    means: dict[str, Tensor] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)
    minima: dict[str, Tensor] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)


class LossFunction(Protocol):
    """A loss of the registry; `config` is an instance of the model registered with it."""

    def __call__(self, inputs: LossInputs, config: Any, denominators: Denominators) -> LossOutput: ...


def need(tensor: Tensor | None, name: str, reason: str) -> Tensor:
    """The tensor, or a UserError that names the context key which is missing and what needs it."""
    if tensor is None:
        raise UserError(f"context.{name} is missing; {reason} needs it (predict-next aligned where per token)")
    return tensor


def need_binary(mask: Tensor, loss: str) -> Tensor:
    """The mask, or a UserError when it holds anything but 0 and 1."""
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise UserError(f"{loss}: context.loss_mask must hold only 0 and 1; scale the advantages to weight tokens")
    return mask
