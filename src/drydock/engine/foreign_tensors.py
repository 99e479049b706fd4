"""Names that clients of other back ends send in `kwargs` or `context`, and what each is refused for."""

SHIFT = "tensors per token are predict-next aligned here (position i is about token i + 1)"
PACKED = (
    "sequences packed into one row are told by kwargs.position_ids [B, T], which start again at 0 with each of them"
)
TEXT_ONLY = "only text is trained"
ROUTING = "expert routing is not replayed"

REASONS: dict[str, str] = {
    "response_mask": f"{SHIFT}; send loss_mask",
    "old_log_probs": f"{SHIFT}; send old_log_probs_shifted",
    "prox_logp": f"{SHIFT}; send prox_logp_shifted",
    "ref_log_prob": f"{SHIFT}; send ref_log_probs_shifted",
    "ref_log_probs": f"{SHIFT}; send ref_log_probs_shifted",
    "rollout_log_probs": f"{SHIFT}; send old_log_probs_shifted",
    "sft_mask": "send loss_mask, or kwargs.labels with the loss 'sft'",
    "cu_seqlens": PACKED,
    "cu_seq_lens_q": PACKED,
    "cu_seq_lens_k": PACKED,
    "max_length_q": PACKED,
    "max_length_k": PACKED,
    "action_masks": "sampling masks are not replayed; mask tokens with context.loss_mask",
    "routed_experts": ROUTING,
    "inputs_embeds": "send input_ids",
    "past_key_values": "prefixes that rows share are found and computed once without it",
    "logits_to_keep": "logits are computed only where the call needs them, without it",
    "dss_compute_logprobs": "name compute_logprobs in processing.post",
    "calculate_entropy": "name compute_entropy in processing.post",
    "pixel_values": TEXT_ONLY,
    "image_grid_thw": TEXT_ONLY,
}
