"""Which token a label is about: supervised labels, brought to predict-next alignment.

Clients send `kwargs.labels` in two alignments, and the wire does not say which (training-api.md, section 4.3):

    own-token     labels[i] is input_ids[i] or -100      as Hugging Face models take them; they shift inside
    predict-next  labels[i] is input_ids[i + 1] or -100  as models take them that do not shift

The alignment belongs to the client, so it is decided once for a call: by `processing.config.label_alignment`, else by
comparing the labels with the tokens. One that fits every row is taken. A call that fits both (and means something
different in each) or neither is refused, with the row that decides; naming the alignment settles it, also for labels
that are meant to differ from the tokens.

A label on padding, on the first token of a row (own-token: nothing predicts it; it is ignored, as Hugging Face does)
or on the last (predict-next: it has no next token; refused) trains nothing.
"""

import numpy as np
from numpy.typing import NDArray

from drydock.engine.request_arrays import position
from drydock.errors import UserError
from drydock.losses import LabelAlignment

IGNORED_LABEL = -100
SETTLE = "say which with processing.config.label_alignment: 'own-token' or 'predict-next'"


def next_tokens(ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The token [B, T] that each position predicts (0 where there is none), and where there is one."""
    has_next = np.arange(ids.shape[1])[None, :] < (lengths - 1)[:, None]
    targets = np.zeros_like(ids)
    targets[:, :-1] = ids[:, 1:]
    targets[~has_next] = 0
    return targets, has_next


def align_labels(
    labels: NDArray[np.int64],
    ids: NDArray[np.int64],
    lengths: NDArray[np.int64],
    alignment: LabelAlignment | None,
    vocab_size: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Targets [B, T], predict-next (the next token where there is no label), and the mask of labelled positions.

    Raises UserError for labels whose alignment cannot be told, on padding, or outside the vocabulary.
    """
    columns = np.arange(ids.shape[1])[None, :]
    labelled = labels != IGNORED_LABEL
    if (wrong := labelled & (columns >= lengths[:, None])).any():
        raise UserError(f"kwargs.labels has a label on padding at {position(wrong)}; put {IGNORED_LABEL} there")
    if (wrong := labelled & ((labels < 0) | (labels >= vocab_size))).any():
        raise UserError(
            f"kwargs.labels has {labels[wrong][0]} at {position(wrong)}; it must be {IGNORED_LABEL} or a token id "
            f"below the vocabulary size {vocab_size}"
        )
    following, has_next = next_tokens(ids, lengths)
    chosen = alignment or _read_alignment(labels, labelled, ids, following, has_next)
    if chosen == "predict-next":
        if (wrong := labelled & ~has_next).any():
            raise UserError(f"kwargs.labels has a label at {position(wrong)}, which has no next token in its row")
        shifted = labels
    else:
        shifted = np.full_like(labels, IGNORED_LABEL)
        shifted[:, :-1] = labels[:, 1:]
    mask = (shifted != IGNORED_LABEL) & has_next
    return np.where(mask, shifted, following), mask.astype(np.float64)


def _read_alignment(
    labels: NDArray[np.int64],
    labelled: NDArray[np.bool_],
    ids: NDArray[np.int64],
    following: NDArray[np.int64],
    has_next: NDArray[np.bool_],
) -> LabelAlignment:
    own = (~labelled | (labels == ids)).all(axis=1)
    shifted = (~labelled | (has_next & (labels == following))).all(axis=1)
    if own.all() and not shifted.all():
        return "own-token"
    if shifted.all() and not own.all():
        return "predict-next"
    if not own.all():
        row = int((~(own | shifted)).argmax()) if (~(own | shifted)).any() else int((~own).argmax())
        raise UserError(f"kwargs.labels of row {row} fit the tokens in neither alignment with the other rows; {SETTLE}")
    if labelled[:, 1:].any() or (labelled & has_next).any():
        row = int(labelled.any(axis=1).argmax())
        raise UserError(f"kwargs.labels of row {row} fit the tokens in both alignments; {SETTLE}")
    return "own-token"
