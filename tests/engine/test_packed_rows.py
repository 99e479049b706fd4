"""Several sequences in one row give the numbers of the same sequences in rows of their own."""

from typing import Any

import numpy as np
import pytest
import torch
from builders.loss_request import CASES, loss_request
from builders.train_batch import grouped_rows

from drydock.engine.batch import parse_batch
from drydock.engine.packed_rows import find_packing
from drydock.engine.training import TrainingEngine
from drydock.errors import UserError

LAYOUT = ((0, 2, 4), (1, 5), (3,))
"""Which sequences stand in each packed row."""


@pytest.fixture(scope="module")
def engine(tiny_model: str) -> TrainingEngine:
    return TrainingEngine(tiny_model, {"mb_spec": {"max_tokens_per_mb": 400}}, dtype="float32")


def packed(request: dict[str, Any]) -> dict[str, Any]:
    """The request with its six rows packed by LAYOUT, rubbish on the padding."""
    lengths = request["kwargs"]["attention_mask"].sum(axis=1)
    width = max(sum(lengths[i] for i in row) for row in LAYOUT) + 3
    order = [i for row in LAYOUT for i in row]

    def pack(key: str, values: np.ndarray) -> np.ndarray:
        if values.ndim == 1:
            return values[order]
        junk = {"labels": -100, "input_ids": 7}.get(key, 0)
        whole = np.full((len(LAYOUT), width, *values.shape[2:]), junk, values.dtype)
        for row, sequences in enumerate(LAYOUT):
            start = 0
            for i in sequences:
                whole[row, start : start + lengths[i]] = values[i, : lengths[i]]
                start += lengths[i]
        return whole

    every = request["kwargs"] | {
        "position_ids": np.broadcast_to(
            np.arange(request["kwargs"]["input_ids"].shape[1]), request["kwargs"]["input_ids"].shape
        )
    }
    return {
        "kwargs": {key: pack(key, np.asarray(value)) for key, value in every.items()},
        "context": {key: pack(key, np.asarray(value)) for key, value in request["context"].items()},
        "processing": request["processing"],
    }


def request_for(case: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return loss_request(case, grouped_rows(rng, groups=2, group_size=3, system=20, prompt=15, response=12), rng)


@pytest.mark.parametrize("case", list(CASES))
def test_packed_rows_give_the_same_loss_and_gradient(engine: TrainingEngine, case: str):
    results, gradients = [], []
    for request in (request_for(case), packed(request_for(case))):
        results.append(engine.forward_backward(request))
        gradients.append(torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None]))
        engine.model.zero_grad()
    assert results[1]["avg_loss"] == pytest.approx(results[0]["avg_loss"], rel=1e-6, abs=1e-6)
    assert float((gradients[0] - gradients[1]).abs().max()) < 1e-6
    assert results[1]["metrics"] == pytest.approx(results[0]["metrics"], rel=2e-6, abs=2e-6)


def test_answers_stand_where_they_were_asked_for(engine: TrainingEngine):
    request = request_for("grpo")
    plain = engine.forward({"kwargs": request["kwargs"]})["post_process_outputs"]["logprobs"]
    answer = engine.forward({"kwargs": packed(request)["kwargs"]})["post_process_outputs"]["logprobs"]
    lengths = request["kwargs"]["attention_mask"].sum(axis=1)
    first, second = LAYOUT[1]
    assert answer.shape == packed(request)["kwargs"]["input_ids"].shape
    assert np.allclose(answer[1, : lengths[first]], plain[first, : lengths[first]], atol=1e-6)
    assert np.allclose(answer[1, lengths[first] :][: lengths[second]], plain[second, : lengths[second]], atol=1e-6)


def test_positions_that_count_on_are_no_packing():
    kwargs = {"input_ids": np.ones((2, 4), int), "position_ids": np.arange(4)[None]}
    assert find_packing(kwargs) is None
    padded = kwargs | {
        "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]]),
        "position_ids": np.array([[0, 1, 2, 3], [0, 1, 0, 0]]),
    }
    assert find_packing(padded) is None


@pytest.mark.parametrize("positions", [[[0, 1, 3, 4]], [[1, 2, 3, 4]], [[0, 1, 1, 2]], [[0, 0.5, 1, 2]]])
def test_positions_that_mean_nothing_are_refused(positions: Any):
    with pytest.raises(UserError, match="position_ids"):
        find_packing({"input_ids": np.ones((1, 4), int), "position_ids": positions})


def test_a_mask_on_the_last_token_of_a_sequence_is_refused():
    request = {
        "kwargs": {"input_ids": np.ones((1, 4), int), "position_ids": [[0, 1, 0, 1]]},
        "context": {"loss_mask": np.array([[0, 1, 1, 0]])},
        "processing": {"loss_fn": "causal_cross_entropy"},
    }
    with pytest.raises(UserError, match="row 0, position 1, which predicts no real token"):
        parse_batch(request, vocab_size=9, max_seq_len=None)


def test_the_padded_width_is_no_constant_of_packed_rows():
    request = packed(request_for("grpo"))
    request["processing"] = {"loss_fn": "grpo", "config": {"loss_agg_mode": "seq-mean-token-sum-norm"}}
    with pytest.raises(UserError, match="set loss_scale_factor"):
        parse_batch(request, vocab_size=400, max_seq_len=None)
