"""A forward-backward request for any loss, and the same request laid out in another way."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from builders.train_batch import Row, request_of

VOCAB = 390

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {"eps_clip": 0.1, "c_clip": 3.0}),
    "gspo": ("grpo", {"importance_sampling_level": "sequence", "loss_agg_mode": "seq-mean-token-mean"}),
    "gspo-token": ("grpo", {"importance_sampling_level": "sequence_token", "eps_clip": 0.01}),
    "decoupled": ("grpo", {"use_decoupled_loss": True, "behav_imp_weight_cap": 1.3}),
    "loglinear": ("grpo", {"prox_logp_method": "loglinear", "current_version": 6}),
    "cispo": ("grpo", {"use_cispo_loss": True, "is_weight_clip_max": 1.2}),
    "sapo": ("grpo", {"use_sapo_loss": True, "loss_agg_mode": "prompt-mean"}),
    "m2po": ("grpo", {"m2_threshold": 0.02}),
    "m2po, entropy": ("grpo", {"m2_threshold": 0.02, "entropy_coeff": 0.1}),
    "dr.grpo": ("grpo", {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 30}),
    "kl and entropy": ("grpo", {"use_kl_loss": True, "kl_loss_coef": 0.5, "entropy_coeff": 0.1}),
    "corrected": (
        "grpo",
        {
            "off_policy_correction": {
                "tis_ratio_type": "sequence",
                "token_mask_is_threshold_high": 1.3,
                "sequence_mask_metric": "product",
            }
        },
    ),
    "fixed denominators": ("ap_grpo", {"batch_num_tokens": 77}),
    "echo": ("grpo_echo_v1", {"aux_ce_weight": 0.3, "echo_global_num_sequences": 20}),
    "rollout_is": ("rollout_is", {"eps_clip": 0.2, "eps_clip_higher": 0.3}),
    "dppo": ("dppo", {"delta_low": 1e-3, "delta_high": 1e-3, "kl_tau": 0.1}),
    "distillation": ("distillation", {"max_ratio": 1.2}),
    "forward distillation": ("distillation", {"direction": "forward_topk", "loss_agg_mode": "seq-mean-token-sum"}),
    "dpo": ("dpo", {"beta": 0.3, "nll_coef": 0.1}),
    "cross-entropy": ("causal_cross_entropy", {}),
    "sft": ("sft", {}),
}
"""Loss name and settings, by a name for the test; between them every loss and every aggregation."""


def loss_request(case: str, rows: Sequence[Row], rng: np.random.Generator) -> dict[str, Any]:
    """Rows (an even number) with every context tensor that the case's loss reads; behaviour near uniform."""
    name, settings = CASES[case]
    request = request_of(rows, loss_fn=name, config=settings)
    mask = request["context"]["loss_mask"]
    shape, count = mask.shape, mask.shape[0]

    def near(centre: float, scale: float) -> np.ndarray:
        return centre + scale * rng.normal(size=shape)

    old = near(-np.log(VOCAB), 0.2)
    context: dict[str, Any] = {"loss_mask": mask}
    if name == "sft":
        labels = np.full(shape, -100)
        labels[:, 1:] = np.where(mask[:, :-1] != 0, request["kwargs"]["input_ids"][:, 1:], -100)
        request["kwargs"]["labels"] = labels
        context = {}
    elif name == "dpo":
        order = rng.permutation(count)
        context |= {"ref_log_probs_shifted": old, "pair_ids": order // 2, "chosen": (order % 2).astype(float)}
    elif name == "distillation":
        if settings.get("direction") == "forward_topk":
            ids = np.argsort(rng.normal(size=(*shape, VOCAB)), axis=-1)[..., :4]
            context |= {
                "teacher_topk_ids_shifted": ids,
                "teacher_topk_log_probs_shifted": np.log(rng.dirichlet(np.ones(6), size=shape)[..., :4]),
            }
        else:
            context |= {"teacher_log_probs_shifted": near(-5.0, 0.5), "old_log_probs_shifted": old}
    elif name == "causal_cross_entropy":
        context["loss_mask"] = mask * rng.uniform(0.2, 2.0, shape)
    else:
        context |= {"advantages": rng.normal(size=(count, 1)) + near(0.5, 0.1), "old_log_probs_shifted": old}
    if case in ("decoupled", "m2po", "m2po, entropy", "corrected"):
        context["prox_logp_shifted"] = old + near(0.0, 0.2)
    if case == "loglinear":
        context["versions"] = rng.integers(1, 6, shape)
    if case == "kl and entropy":
        context["ref_log_probs_shifted"] = near(-np.log(VOCAB), 0.3)
    if case == "grpo":
        context |= {"rollout_is_weights": rng.uniform(0.5, 1.5, shape)}
    if case == "gspo":
        context |= {"sequence_loss_weights": rng.uniform(0.2, 1.0, count)}
    if case == "sapo":
        context["prompt_group_ids"] = rng.integers(0, 3, count)
    if case == "echo":
        observed = np.zeros(shape)
        observed[:, 10:30] = 1
        mask[count // 2 :] = 0
        context["echo_observation_mask"] = observed * (mask == 0)
    request["context"] = context
    return request


def relaid(request: Mapping[str, Any], order: Sequence[int], pads: int) -> dict[str, Any]:
    """The same request with its rows in another order, `pads` columns wider, and rubbish where nothing is trained."""
    rows = list(order)
    trained = np.asarray(request["context"].get("loss_mask", np.ones(1)) != 0)

    def lay(key: str, values: np.ndarray) -> np.ndarray:
        if values.ndim == 1:
            return values[rows]
        junk = {"attention_mask": 0, "labels": -100, "loss_mask": 0, "echo_observation_mask": 0, "input_ids": 3}
        wide = np.full((values.shape[0], values.shape[1] + pads, *values.shape[2:]), junk.get(key, 1), values.dtype)
        wide[:, : values.shape[1]] = values
        if values.dtype.kind == "f" and key not in junk and "echo_observation_mask" not in request["context"]:
            wide[:, : values.shape[1]][~trained] = np.nan
            wide[:, values.shape[1] :] = np.nan
        return wide[rows]

    return {
        "kwargs": {key: lay(key, np.asarray(value)) for key, value in request["kwargs"].items()},
        "context": {key: lay(key, np.asarray(value)) for key, value in request["context"].items()},
        "processing": request["processing"],
    }
