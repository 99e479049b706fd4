"""What a forward-backward request may hold beside the rows, and what is refused by name."""

from typing import Any

import numpy as np
import pytest

from drydock.engine.batch import TrainBatch, parse_batch
from drydock.errors import UserError

IDS = np.array([[11, 12, 13, 14], [21, 22, 23, 24]])
MASK = np.array([[0, 1, 1, 0], [1, 1, 1, 0]])
SOME = np.full((2, 4), -1.0)


def parse(loss: str, config: dict[str, Any], **context: Any) -> TrainBatch:
    request = {
        "kwargs": {"input_ids": IDS},
        "context": {"loss_mask": MASK} | context,
        "processing": {"loss_fn": loss, "config": config},
    }
    return parse_batch(request, vocab_size=100, max_seq_len=None)


def test_denominators_may_stand_in_the_context():
    batch = parse("grpo", {}, advantages=SOME, batch_num_tokens=np.array([40]), global_batch_size=8)
    assert (batch.config.batch_num_tokens, batch.config.global_batch_size) == (40, 8)
    assert parse("grpo", {"batch_num_tokens": 40}, advantages=SOME, batch_num_tokens=40).config.batch_num_tokens == 40


def test_denominators_that_contradict_are_refused_and_ap_grpo_takes_its_settings():
    with pytest.raises(UserError, match=r"context\.batch_num_tokens is 40, processing\.config\.batch_num_tokens is 41"):
        parse("grpo", {"batch_num_tokens": 41}, advantages=SOME, batch_num_tokens=40)
    batch = parse("ap_grpo", {"batch_num_tokens": 41}, advantages=SOME, batch_num_tokens=40)
    assert batch.config.batch_num_tokens == 41


def test_prompt_tokens_are_counted_over_the_call_or_taken_as_sent():
    config = {"loss_agg_mode": "prompt-mean"}
    batch = parse("grpo", config, advantages=SOME, prompt_group_ids=np.array([3, 3]))
    assert batch.denominators(1).prompts == 1
    parse("grpo", config, advantages=SOME, prompt_token_counts=[9, 9], sequence_loss_weights=[0.5, 0.5])


@pytest.mark.parametrize(
    ("loss", "config", "context", "message"),
    [
        ("grpo", {}, {"prox_logp_shifted": SOME}, "prox_logp_shifted needs context.old_log_probs_shifted"),
        ("grpo", {"use_decoupled_loss": True}, {}, "use_decoupled_loss needs context.prox_logp_shifted"),
        ("grpo", {"behav_imp_weight_cap": 2}, {}, "behav_imp_weight_cap needs context.prox_logp_shifted"),
        ("grpo", {"m2_threshold": 0.1}, {}, "m2_threshold needs context.prox_logp_shifted"),
        (
            "grpo",
            {"off_policy_correction": {"tis_ratio_type": "token"}},
            {"old_log_probs_shifted": SOME},
            "tis_ratio_type needs context.prox_logp_shifted",
        ),
        ("grpo", {"off_policy_correction": {}}, {}, "off_policy_correction needs context.old_log_probs_shifted"),
        ("grpo", {"use_kl_loss": True}, {}, "use_kl_loss needs context.ref_log_probs_shifted"),
        ("grpo", {"kl_importance_weighted": True}, {}, "no effect without use_kl_loss"),
        ("grpo", {"prox_logp_method": "loglinear", "current_version": 3}, {}, "needs context.versions"),
        (
            "grpo",
            {"prox_logp_method": "loglinear", "current_version": 3},
            {"versions": MASK, "old_log_probs_shifted": SOME, "prox_logp_shifted": SOME},
            "computes what context.prox_logp_shifted holds",
        ),
        ("grpo", {"loss_agg_mode": "prompt-mean"}, {}, "prompt-mean' needs context.prompt_group_ids"),
        ("grpo", {}, {"rollout_is_weights": SOME}, "rollout_is_weights must not be negative"),
        ("grpo", {}, {"prompt_group_ids": np.array([0.5, 1])}, "must hold integers"),
        ("grpo", {}, {"sequence_loss_weights": np.ones(3)}, "shape"),
        ("rollout_is", {}, {}, "old_log_probs_shifted is missing; loss 'rollout_is' needs it"),
        ("rollout_is", {}, {"old_log_probs_shifted": SOME, "versions": MASK}, "versions is not read by loss"),
        ("dpo", {}, {"advantages": None}, "ref_log_probs_shifted is missing"),
        ("causal_cross_entropy", {}, {}, "advantages is not read by loss 'causal_cross_entropy'"),
        ("causal_cross_entropy", {}, {"advantages": None, "global_batch_size": 3}, "global_batch_size is not read"),
        ("grpo", {}, {"old_log_probs": SOME}, "send old_log_probs_shifted"),
        ("grpo", {}, {"cu_seqlens": np.array([0, 4])}, "told by kwargs.position_ids"),
        ("sft", {}, {}, "kwargs.labels is missing; loss 'sft'"),
        ("distillation", {}, {"advantages": None}, "teacher_log_probs_shifted"),
        (
            "distillation",
            {"direction": "forward_topk"},
            {
                "advantages": None,
                "teacher_topk_ids_shifted": np.full((2, 4, 1), 100),
                "teacher_topk_log_probs_shifted": SOME[..., None],
            },
            "outside the vocabulary of 100",
        ),
        (
            "distillation",
            {"direction": "forward_topk"},
            {
                "advantages": None,
                "teacher_topk_ids_shifted": np.zeros((2, 4, 2), int),
                "teacher_topk_log_probs_shifted": np.full((2, 4, 2), -3.0),
            },
            "names a token twice",
        ),
        ("grpo_echo_v1", {"aux_ce_weight": 1, "echo_global_num_sequences": 9}, {}, "echo_observation_mask is missing"),
    ],
)
def test_options_without_what_they_need_are_refused_by_name(
    loss: str, config: dict[str, Any], context: dict[str, Any], message: str
):
    with pytest.raises(UserError, match=message):
        parse(loss, config, **({"advantages": SOME} | context))
