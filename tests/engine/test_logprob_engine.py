"""Scoring given tokens: the frozen engine, and the training engine's forward."""

import numpy as np
import pytest
import torch
from builders.train_batch import grouped_rows, request_of

from drydock.engine.logprob_engine import LogProbEngine
from drydock.engine.training import TrainingEngine
from drydock.errors import ConfigError, UserError

ROWS = grouped_rows(np.random.default_rng(0), groups=2, group_size=3, system=90, prompt=30)


def test_log_probs_and_entropy_are_those_of_one_plain_pass(tiny_model: str):
    engine = LogProbEngine(tiny_model, {"mb_spec": {"max_tokens_per_mb": 300}})
    request = request_of(ROWS, post=["compute_entropy"])
    result = engine.forward(request)
    assert result["metrics"]["prefix_sharing/micro_batches"] > 1
    ids = torch.from_numpy(request["kwargs"]["input_ids"])
    with torch.no_grad():
        logprobs = engine.model(
            input_ids=ids, attention_mask=torch.from_numpy(request["kwargs"]["attention_mask"]), use_cache=False
        ).logits.log_softmax(-1)
    expected = logprobs[:, :-1].gather(2, ids[:, 1:, None])[:, :, 0].numpy()
    entropy = -(logprobs.exp() * logprobs).sum(-1).numpy()
    outputs = result["post_process_outputs"]
    assert set(outputs) == {"logprobs", "entropy"}
    for row, (tokens, _) in enumerate(ROWS):
        last = len(tokens) - 1
        assert np.abs(outputs["logprobs"][row, :last] - expected[row, :last]).max() < 1e-5
        assert np.abs(outputs["entropy"][row, :last] - entropy[row, :last]).max() < 1e-5
        assert not outputs["logprobs"][row, last:].any()


def test_the_frozen_engine_and_the_trainer_that_holds_the_same_weights_agree(tiny_model: str):
    trainer, frozen = TrainingEngine(tiny_model, {}), LogProbEngine(tiny_model, {})
    request = request_of(ROWS)
    mine, theirs = (engine.forward(request)["post_process_outputs"]["logprobs"] for engine in (trainer, frozen))
    assert np.array_equal(mine, theirs)
    assert trainer.pending_calls == 0
    assert not any(parameter.requires_grad for parameter in frozen.model.parameters())
    with pytest.raises(UserError, match="no forward-backward"):
        trainer.step()


def test_a_forward_leaves_accumulated_gradients_as_they_are(tiny_model: str):
    engines = [TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-3}}) for _ in range(2)]
    norms = []
    for engine, scores in zip(engines, (True, False), strict=True):
        engine.forward_backward(request_of(ROWS))
        if scores:
            engine.forward(request_of(ROWS, post=["compute_entropy"]))
        norms.append(engine.step()["metrics"]["grad_norm"])
    assert norms[0] == norms[1]


def test_bad_requests_and_settings_are_refused_by_name(tiny_model: str):
    engine = LogProbEngine(tiny_model, {"max_seq_len": 50})
    assert engine.max_seq_len == 50
    with pytest.raises(UserError, match="max_seq_len 50"):
        engine.forward(request_of(ROWS))
    with pytest.raises(UserError, match="input_ids is missing"):
        engine.forward({})
    with pytest.raises(UserError, match="unknown post-processing"):
        engine.forward(request_of([([1, 2], [0, 1])], post=["compute_perplexity"]))
    with pytest.raises(ConfigError, match="max_tokens_per_mb"):
        LogProbEngine(tiny_model, {"mb_spec": {"max_tokens_per_mb": 0}})
