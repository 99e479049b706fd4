"""Trajectories to rows, rows to the arrays of a forward-backward call."""

import numpy as np
import pytest
from builders.trajectories import sample, trajectory
from hypothesis import given
from hypothesis import strategies as st

from drydock.training.batch import Row, policy_batch, rows_of, shift_left
from drydock.training.sft.packing import supervised_batch


def row(loss_mask: list[int], *, first_id: int = 10, advantage: float = 0.5, weight: float = 1.0) -> Row:
    made = sample(loss_mask, first_id)
    return Row(made.token_ids, made.loss_mask, made.logprobs, advantage, weight)


def test_a_policy_batch_by_hand() -> None:
    rows = [row([0, 1, 1], advantage=2.0, weight=0.25), row([0, 0, 1, 0, 1], first_id=50, advantage=-1.0)]
    batch = policy_batch(rows, loss_fn="grpo", loss_config={"eps_clip": 0.2})
    assert batch["kwargs"]["input_ids"].tolist() == [[10, 11, 12, 0, 0], [50, 51, 52, 53, 54]]
    assert batch["kwargs"]["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    # predict-next: column i is about the token in column i + 1, so the last column is never trained
    context = batch["context"]
    assert context["loss_mask"].tolist() == [[1, 1, 0, 0, 0], [0, 1, 0, 1, 0]]
    assert context["advantages"].tolist() == [[2, 2, 0, 0, 0], [0, -1, 0, -1, 0]]
    expected = [[-0.11, -0.12, 0, 0, 0], [0, -0.52, 0, -0.54, 0]]
    np.testing.assert_allclose(context["old_log_probs_shifted"], expected, rtol=1e-6)
    assert context["sequence_loss_weights"].tolist() == [0.25, 1.0]
    assert batch["processing"] == {"loss_fn": "grpo", "config": {"eps_clip": 0.2}, "post": []}


def test_a_supervised_batch_trains_the_masked_in_tokens() -> None:
    batch = supervised_batch([row([0, 1]), row([0, 0, 1])])
    assert batch["context"]["loss_mask"].tolist() == [[1, 0, 0], [0, 1, 0]]
    assert batch["processing"]["loss_fn"] == "causal_cross_entropy"


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=5))
def test_every_trained_token_is_predicted_from_the_column_before_it(masks: list[list[int]]) -> None:
    rows = [row([0, *mask], first_id=100 * number, advantage=number + 1) for number, mask in enumerate(masks, start=1)]
    batch = policy_batch(rows, loss_fn="grpo", loss_config={})
    ids, context = batch["kwargs"]["input_ids"], batch["context"]
    assert batch["kwargs"]["attention_mask"].sum(axis=1).tolist() == [len(one.token_ids) for one in rows]
    for index, one in enumerate(rows):
        places = np.flatnonzero(context["loss_mask"][index])
        trained = [token for token, own in zip(one.token_ids, one.loss_mask, strict=True) if own]
        assert ids[index, places + 1].tolist() == trained
        assert context["advantages"][index, places].tolist() == [one.advantage] * len(trained)
        np.testing.assert_allclose(context["old_log_probs_shifted"][index, places], [-t / 100 for t in trained])
        outside = context["loss_mask"][index] == 0
        assert not context["advantages"][index, outside].any()
        assert not context["old_log_probs_shifted"][index, outside].any()


def test_shifting_drops_the_first_column() -> None:
    assert shift_left(np.array([[1, 2, 3]])).tolist() == [[2, 3, 0]]
    assert shift_left(np.array([[1]])).tolist() == [[0]]


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=4))
def test_a_rollout_counts_once_however_it_was_cut(masks: list[list[int]]) -> None:
    rows = rows_of(trajectory(samples=[sample(mask) for mask in masks], advantage=0.5))
    assert len(rows) == sum(any(mask) for mask in masks)
    if rows:
        assert sum(one.weight for one in rows) == pytest.approx(1.0)
        total = sum(one.trained_tokens for one in rows)
        assert [one.weight for one in rows] == [pytest.approx(one.trained_tokens / total) for one in rows]
        assert {one.advantage for one in rows} == {0.5}


def test_a_masked_rollout_gives_no_row() -> None:
    assert rows_of(trajectory(reward=None, advantage=None)) == []
