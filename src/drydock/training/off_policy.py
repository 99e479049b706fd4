"""How a step's loss corrects for turns that an earlier policy sampled.

Without correction the ratio of the loss is to the sampler's log-probs. That is right as long as sampler and trainer
hold the same weights; of a rollout that is a step or more old, most tokens are beyond GSPO's narrow clip range from the
start. With a correction the loss is decoupled (AReaL, arXiv 2505.24298, eq. 5): the clip range is around the trainer's
own policy at the start of the step (`prox`), and the gap between it and the sampler's is an importance weight,
truncated (TIS) or masked where it is out of range (IcePop, arXiv 2510.18855).
"""

from typing import Any, Literal

Correction = Literal["none", "tis", "sequence_tis", "icepop"]

BLOCKS: dict[str, dict[str, Any]] = {
    "tis": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0},
    "sequence_tis": {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 5.0},
    "icepop": {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 5.0},
}
"""`off_policy_correction` of the wire, by name; docs/losses.md says what the keys mean."""


def correction_block(configured: Correction | None, max_staleness: int) -> dict[str, Any] | None:
    """The wire's block of what applies; None where nothing is corrected.

    configured: None stands for `tis` where rollouts may be stale, for `none` where they may not.
    """
    return BLOCKS.get(configured or ("tis" if max_staleness else "none"))
