import numpy as np
import pytest
from builders.tiny_model import build_tiny_model
from hypothesis import given
from hypothesis import strategies as st

from drydock.training.batch import Row
from drydock.training.sft.batches import batches_a_pass, shuffled_batches
from drydock.training.sft.packing import pack, supervised_batch


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(10, 80))
def test_every_row_is_packed_once_and_within_the_budget(lengths: list[int], budget: int):
    packed = pack(lengths, budget)
    assert sorted(index for row in packed for index in row) == list(range(len(lengths)))
    for row in packed:
        assert sum(lengths[index] for index in row) <= budget or len(row) == 1
    totals = sorted(sum(lengths[index] for index in row) for row in packed)
    if len(totals) > 1:
        assert totals[0] + totals[1] > budget, "no two rows would fit into one"


def rows_of(lengths: list[int]) -> list[Row]:
    rng = np.random.default_rng(0)
    rows = []
    for length in lengths:
        mask = [0, *rng.integers(0, 2, length - 2).tolist(), 1]
        rows.append(Row(rng.integers(5, 200, length).tolist(), mask, [0.0] * length, 0.0, 1.0))
    return rows


def test_no_sequence_predicts_the_first_token_of_the_next():
    rows = [Row([5, 6, 7], [1, 1, 1], [0.0] * 3, 0.0, 1.0), Row([8, 9], [1, 1], [0.0] * 2, 0.0, 1.0)]
    batch = supervised_batch(rows, 6)
    assert batch["kwargs"]["input_ids"].tolist() == [[5, 6, 7, 8, 9]]
    assert batch["kwargs"]["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert batch["context"]["loss_mask"].tolist() == [[1, 1, 0, 1, 0]]


def test_packed_rows_have_the_loss_and_gradient_of_padded_ones(tmp_path_factory: pytest.TempPathFactory):
    from drydock.engine.training import TrainingEngine

    model = str(build_tiny_model(tmp_path_factory.mktemp("packing") / "model"))
    rows = rows_of([9, 17, 5, 30, 12])
    found = []
    for budget in (None, 48):
        engine = TrainingEngine(model, {"max_seq_len": 64})
        result = engine.forward_backward(supervised_batch(rows, budget))
        scores = engine.forward({"kwargs": supervised_batch(rows, budget)["kwargs"]})["post_process_outputs"]
        mask = supervised_batch(rows, budget)["context"]["loss_mask"]
        evaluated = -(scores["logprobs"] * mask).sum() / mask.sum()
        found.append((result["avg_loss"], engine.step()["metrics"]["grad_norm"], evaluated))
    assert len(supervised_batch(rows, 48)["kwargs"]["input_ids"]) == 2
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    assert found[0][0] == pytest.approx(found[0][2], rel=1e-5)


def test_batches_are_drawn_without_replacement_and_known_by_their_seed():
    batches = shuffled_batches(range(10), 3, "seed")
    first = [next(batches) for _ in range(6)]
    assert batches_a_pass(10, 3) == 3
    for start in (0, 3):
        drawn = [item for batch in first[start : start + 3] for item in batch]
        assert len(set(drawn)) == 9
    assert first[:3] != first[3:]
    again = shuffled_batches(range(10), 3, "seed")
    assert [next(again) for _ in range(6)] == first
    assert [len(batch) for batch, _ in zip(shuffled_batches(range(2), 8, "s"), range(3), strict=False)] == [2, 2, 2]
