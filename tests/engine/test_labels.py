"""How supervised labels are aligned: read off the tokens, said by the client, or refused."""

import numpy as np
import pytest

from drydock.engine.batch import parse_batch
from drydock.engine.labels import align_labels
from drydock.errors import UserError
from drydock.losses import LabelAlignment

IDS = np.array([[11, 12, 13, 14, 15], [21, 22, 23, 0, 0]])
LENGTHS = np.array([5, 3])
OWN = np.array([[-100, -100, 13, 14, 15], [-100, 22, 23, -100, -100]])
SHIFTED = np.array([[-100, 13, 14, 15, -100], [22, 23, -100, -100, -100]])
MASK = [[0, 1, 1, 1, 0], [1, 1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("labels", "said"), [(OWN, None), (SHIFTED, None), (OWN, "own-token"), (SHIFTED, "predict-next")]
)
def test_either_alignment_trains_the_same_tokens(labels: np.ndarray, said: LabelAlignment | None):
    targets, mask = align_labels(labels, IDS, LENGTHS, said, 100)
    assert mask.tolist() == MASK
    assert targets.tolist() == [[12, 13, 14, 15, 0], [22, 23, 0, 0, 0]]


def test_the_first_token_of_a_row_is_predicted_by_nothing():
    whole = np.where(np.arange(5) < LENGTHS[:, None], IDS, -100)
    _, mask = align_labels(whole, IDS, LENGTHS, None, 100)
    assert mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]


def test_one_row_that_fits_both_is_settled_by_the_others():
    ids, lengths = np.array([[7, 7, 7], [1, 2, 3]]), np.array([3, 3])
    _, mask = align_labels(np.array([[-100, 7, -100], [-100, 2, 3]]), ids, lengths, None, 100)
    assert mask.tolist() == [[1, 0, 0], [1, 1, 0]]
    _, mask = align_labels(np.array([[-100, 7, -100], [2, 3, -100]]), ids, lengths, None, 100)
    assert mask.tolist() == [[0, 1, 0], [1, 1, 0]]


def test_labels_that_differ_from_the_tokens_train_what_they_say_where_the_alignment_is_said():
    labels = np.array([[-100, -100, 99, 14, 15], [-100, 22, 23, -100, -100]])
    targets, mask = align_labels(labels, IDS, LENGTHS, "own-token", 100)
    assert targets[0].tolist() == [12, 99, 14, 15, 0]
    assert mask.tolist() == MASK


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[-100, -100, 99, 14, 15], [-100] * 5]), "row 0 fit the tokens in neither alignment"),
        (np.vstack([OWN[:1], SHIFTED[1:]]), "neither alignment with the other rows; say which with processing.config"),
        (np.where(IDS == 0, 0, OWN), "label on padding at row 1, position 3"),
        (np.where(OWN == 13, 1000, OWN), "1000 at row 0, position 2; .* vocabulary size 100"),
        (np.where(OWN == 13, -7, OWN), "-7 at row 0, position 2"),
    ],
)
def test_labels_that_cannot_be_told_are_refused(labels: np.ndarray, message: str):
    with pytest.raises(UserError, match=message):
        align_labels(labels, IDS, LENGTHS, None, 100)


def test_labels_that_fit_both_alignments_are_refused():
    ids, lengths = np.array([[7, 7, 7]]), np.array([3])
    with pytest.raises(UserError, match="row 0 fit the tokens in both alignments"):
        align_labels(np.array([[-100, 7, -100]]), ids, lengths, None, 100)


def test_no_label_at_all_trains_nothing():
    _, mask = align_labels(np.full((2, 5), -100), IDS, LENGTHS, None, 100)
    assert not mask.any()


def test_a_predict_next_label_on_a_last_token_is_refused():
    with pytest.raises(UserError, match="row 0, position 4, which has no next token"):
        align_labels(OWN, IDS, LENGTHS, "predict-next", 100)


@pytest.mark.parametrize("name", [None, "sft", "sft_ce"])
def test_the_alignment_is_a_setting_of_every_loss_on_labels(name: str | None):
    kwargs = {"input_ids": IDS, "attention_mask": (IDS != 0).astype(int), "labels": SHIFTED}
    processing = {"loss_fn": name, "config": {"label_alignment": "predict-next"}}
    batch = parse_batch({"kwargs": kwargs, "processing": processing}, vocab_size=100, max_seq_len=None)
    assert batch.loss_mask.tolist() == MASK
