"""Every loss learns what it is for, on a tiny model, in seconds."""

from typing import Any

import numpy as np
import pytest
import torch
from builders.train_batch import request_of

from drydock.engine.training import TrainingEngine

PROMPTS, ANSWER = 4, 6


def test_dpo_comes_to_prefer_the_chosen_rows_and_holds_the_rest(tiny_model: str):
    """Pairs share a prompt; the micro-batch budget is so small that pairs are split."""
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 1e-3}, "mb_spec": {"max_tokens_per_mb": 40}})
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(PROMPTS):
        prompt = rng.integers(0, 390, 8).tolist()
        rows += [(prompt + rng.integers(0, 390, ANSWER).tolist(), [0] * 8 + [1] * ANSWER) for _ in range(2)]
    request = request_of(rows, loss_fn="dpo", config={"beta": 0.5})
    reference = engine.forward({"kwargs": request["kwargs"]})["post_process_outputs"]["logprobs"]
    request["context"] |= {
        "ref_log_probs_shifted": reference,
        "pair_ids": np.arange(2 * PROMPTS) // 2,
        "chosen": np.arange(2 * PROMPTS) % 2,
    }
    answers = []
    for _ in range(12):
        answers.append(engine.forward_backward(request))
        engine.step()
    first, last = answers[0], answers[-1]
    assert abs(first["avg_loss"] - np.log(2)) < 1e-5
    assert first["metrics"]["prefix_sharing/micro_batches"] > 1
    assert last["avg_loss"] < 0.1
    assert last["metrics"]["rewards_accuracy"] == 1.0
    assert last["metrics"]["rewards_chosen"] > last["metrics"]["rewards_rejected"]


def test_a_student_comes_to_agree_with_its_teacher(tiny_model: str):
    """Reverse KL on fixed rows; the teacher is the same architecture, trained on the rows."""
    rng = np.random.default_rng(1)
    rows = [(rng.integers(0, 390, 12).tolist(), [0] * 4 + [1] * 8) for _ in range(6)]
    teacher = TrainingEngine(tiny_model, {"optimizer": {"lr": 3e-3}})
    for _ in range(15):
        teacher.forward_backward(request_of(rows, loss_fn="causal_cross_entropy"))
        teacher.step()
    student = TrainingEngine(tiny_model, {"optimizer": {"lr": 3e-3}})
    request = request_of(rows, loss_fn="distillation")
    score = {"kwargs": request["kwargs"]}
    request["context"]["teacher_log_probs_shifted"] = teacher.forward(score)["post_process_outputs"]["logprobs"]
    kl = []
    for _ in range(15):
        request["context"]["old_log_probs_shifted"] = student.forward(score)["post_process_outputs"]["logprobs"]
        kl.append(-student.forward_backward(request)["metrics"]["teacher_kl"])
        student.step()
    assert kl[-1] < 0.3 * kl[0]


@pytest.mark.parametrize(
    ("loss", "config"),
    [
        ("grpo", {"use_cispo_loss": True, "eps_clip": 1.0, "eps_clip_higher": 4.0}),
        ("grpo", {"use_sapo_loss": True}),
        ("grpo", {"use_decoupled_loss": True, "behav_imp_weight_cap": 5.0, "m2_threshold": 0.04, "eps_clip": 10.0}),
        ("grpo", {"off_policy_correction": {"tis_ratio_type": "token"}, "entropy_coeff": 0.001}),
        ("rollout_is", {"eps_clip": 0.5}),
        ("dppo", {"kl_tau": 1e-3}),
    ],
    ids=["cispo", "sapo", "m2po, decoupled", "tis, entropy", "rollout_is", "dppo"],
)
def test_policy_losses_raise_the_reward_of_single_tokens(tiny_model: str, loss: str, config: dict[str, Any]):
    """Reward 1 for an even token; sampled at temperature 0.8, each batch trained twice, so that ratios move."""
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 3e-3}, "mb_spec": {"max_tokens_per_mb": 200}}, seed=0)
    generator = torch.Generator().manual_seed(0)
    prompt = [5, 6, 7, 8]
    shares: list[float] = []
    for _ in range(12):
        with torch.no_grad():
            logits = engine.model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
        policy = (logits[:390] / 0.8).softmax(-1)
        tokens = torch.multinomial(policy, 96, replacement=True, generator=generator)
        rewards = (tokens % 2 == 0).float()
        shares.append(float(policy[::2].sum()))
        request = request_of(
            [([*prompt, token], [0, 0, 0, 0, 1]) for token in tokens.tolist()], loss_fn=loss, config=config
        )
        request["kwargs"]["temperature"] = 0.8
        old = engine.forward({"kwargs": request["kwargs"]})["post_process_outputs"]["logprobs"]
        request["context"] |= {
            "advantages": np.repeat((rewards - rewards.mean()).numpy()[:, None], 5, axis=1),
            "old_log_probs_shifted": old,
        }
        if loss == "grpo":
            request["context"]["prox_logp_shifted"] = old
        for _ in range(2):
            engine.forward_backward(request)
            engine.step()
    assert shares[0] < 0.65
    assert shares[-1] > 0.9
