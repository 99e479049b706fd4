"""Names of a forward-backward call, for whoever checks or writes one without loading an engine.

`LOSS_SETTINGS` names the losses and the keys of their configuration; a test compares it with the losses themselves.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

SCALE = ("batch_num_tokens", "global_batch_size", "dp_size")
POLICY = (
    "loss_agg_mode",
    "loss_scale_factor",
    *SCALE,
    "use_kl_loss",
    "kl_loss_coef",
    "kl_loss_type",
    "kl_importance_weighted",
    "entropy_coeff",
)
GRPO = (
    *POLICY,
    "eps_clip",
    "eps_clip_higher",
    "c_clip",
    "importance_sampling_level",
    "use_decoupled_loss",
    "prox_logp_method",
    "current_version",
    "behav_imp_weight_cap",
    "m2_threshold",
    "use_cispo_loss",
    "is_weight_clip_max",
    "use_sapo_loss",
    "sapo_tau_pos",
    "sapo_tau_neg",
    "off_policy_correction",
)
ECHO = (*GRPO, "aux_ce_weight", "echo_global_num_sequences", "echo_batch_denominator")
CROSS_ENTROPY = ("batch_num_tokens", "dp_size")
SFT = ("label_alignment", *CROSS_ENTROPY)

LOSS_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "grpo": GRPO,
    "ap_grpo": GRPO,
    "grpo_echo_v1": ECHO,
    "ap_grpo_echo_v1": ECHO,
    "rollout_is": (*POLICY, "eps_clip", "eps_clip_higher"),
    "dppo": (*POLICY, "divergence", "delta_low", "delta_high", "kl_tau"),
    "distillation": (*POLICY, "direction", "max_ratio"),
    "dpo": (
        "beta",
        "loss_type",
        "label_smoothing",
        "length_normalized",
        "nll_coef",
        "global_batch_size",
        "dp_size",
    ),
    "causal_cross_entropy": CROSS_ENTROPY,
    "sft": SFT,
    "sft_ce": (*SFT, "logits_optimization", "logits_optimization_peak_mem_size_in_gib"),
}
"""Loss name to its configuration keys."""

ELSEWHERE: Mapping[str, str] = {
    "verl_grpo": "its masks are aligned with the response and its clip distances fixed; use 'grpo', whose masks are "
    "predict-next aligned and whose clip distances are settings",
    "cortex_grpo": "it is 'grpo' on the wire",
    "ppo": "it is 'grpo' here; a clipped surrogate is its default",
    "regular": "it is 'grpo' here; a clipped surrogate is its default",
    "dual_clip": "it is 'grpo' with c_clip here",
    "gspo": "it is 'grpo' with importance_sampling_level 'sequence' here",
    "cispo": "it is 'grpo' with use_cispo_loss here",
    "sapo": "it is 'grpo' with use_sapo_loss here",
    "dapo": "it is 'grpo' with eps_clip_higher 0.28 here",
    "dr_grpo": "it is 'grpo' with loss_agg_mode 'seq-mean-token-sum-norm' here",
    "importance_sampling": "it is 'rollout_is' here, or 'grpo' with old_log_probs_shifted and a wide eps_clip",
    "cross_entropy": "it is 'causal_cross_entropy' here",
}
"""Losses of other registries that are not served under their name, and what to use."""

LABEL_LOSSES = ("sft", "sft_ce")
"""Losses on `kwargs.labels`; every other loss trains where `context.loss_mask` says."""

POSTS = (
    "identity",
    "apply_temperature",
    "compute_logprobs",
    "compute_entropy",
    "compute_entropy_and_logprobs",
    "ap_compute_logprobs",
)
"""Names of `processing.post`."""


def problem_of(loss_name: str, settings: Mapping[str, object]) -> str | None:
    """What is wrong with a loss name or a key of its configuration, offering the nearest known one; else None."""
    known = LOSS_SETTINGS.get(loss_name)
    if loss_name in ELSEWHERE:
        return f"processing.loss_fn: {loss_name!r} is not served: {ELSEWHERE[loss_name]}"
    if known is None:
        names = ", ".join(sorted(LOSS_SETTINGS))
        return (
            f"processing.loss_fn: unknown loss {loss_name!r}{_nearest(loss_name, list(LOSS_SETTINGS))}; known: {names}"
        )
    for key in settings:
        if key not in known:
            hint = _nearest(key, known)
            return f"processing.config.{key}: unknown setting of {loss_name}{hint}; known: {', '.join(known)}"
    return None


def _nearest(name: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""
