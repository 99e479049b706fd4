"""Settings of the `grpo` loss, and what they need or exclude. Names as on the wire (training-api.md, section 4.4)."""

from typing import Any

from pydantic import Field, model_validator

from drydock.errors import UserError
from drydock.losses.base import Sent
from drydock.losses.off_policy import OffPolicyCorrection
from drydock.losses.policy import PolicyConfig, check_policy
from drydock.losses.ratio import ProxMethod, RatioLevel


class GrpoConfig(PolicyConfig):
    """Settings of the `grpo` loss; names as on the wire."""

    eps_clip: float = Field(default=0.2, ge=0.0)
    """Lower clip distance, and the upper one unless `eps_clip_higher` is given (GSPO: 3e-4)."""
    eps_clip_higher: float | None = Field(default=None, ge=0.0)
    """Upper clip distance (DAPO: 0.28, GSPO: 4e-4)."""
    c_clip: float | None = Field(default=None, gt=1.0)
    """Dual clip: bound of a token's loss in units of |A|; off when None (usual value 3)."""
    importance_sampling_level: RatioLevel = "token"
    """`token` for GRPO, `sequence` for GSPO, `sequence_token` for GSPO-token."""
    use_decoupled_loss: bool = False
    """Insist on three policies: refused unless proximal log-probs are sent or computed (loglinear). They are used
    whenever they are there."""
    prox_logp_method: ProxMethod = "recompute"
    """Where the proximal log-probs come from; see `drydock.losses.ratio`."""
    current_version: int | None = Field(default=None, ge=0)
    """Version of the policy under training; with `context.versions`, the staleness of the tokens is reported."""
    behav_imp_weight_cap: float | None = Field(default=None, gt=0.0)
    """Drop tokens whose behaviour weight exp(prox - old) is larger."""
    m2_threshold: float | None = Field(default=None, gt=0.0)
    """M2PO: bound on the mean of (old - prox)^2 over the call's tokens."""
    use_cispo_loss: bool = False
    """CISPO in the place of the clipped surrogate."""
    is_weight_clip_max: float | None = Field(default=None, gt=0.0)
    """CISPO: only an upper cap of the weight, in the place of the two clip distances."""
    use_sapo_loss: bool = False
    """SAPO's soft gate in the place of the clipped surrogate; `eps_clip` has no effect then."""
    sapo_tau_pos: float = Field(default=1.0, gt=0.0)
    """SAPO's temperature where the advantage is positive."""
    sapo_tau_neg: float = Field(default=1.05, gt=0.0)
    """SAPO's temperature elsewhere."""
    off_policy_correction: OffPolicyCorrection | None = None
    """Corrections for the gap between sampler and trainer; see `drydock.losses.off_policy`."""

    @model_validator(mode="after")
    def _options_agree(self) -> "GrpoConfig":
        correction = self.off_policy_correction
        tis = correction is not None and correction.tis_ratio_type is not None
        capped = self.behav_imp_weight_cap is not None
        excluded = [
            ("use_cispo_loss", self.use_cispo_loss, "use_sapo_loss", self.use_sapo_loss),
            ("use_cispo_loss", self.use_cispo_loss, "c_clip", self.c_clip is not None),
            ("use_sapo_loss", self.use_sapo_loss, "c_clip", self.c_clip is not None),
            ("use_sapo_loss", self.use_sapo_loss, "use_decoupled_loss", self.use_decoupled_loss),
            ("behav_imp_weight_cap", capped, "off_policy_correction.tis_ratio_type", tis),
        ]
        for first, first_on, second, second_on in excluded:
            if first_on and second_on:
                raise ValueError(f"{first} and {second} exclude each other; switch one of them off")
        if self.is_weight_clip_max is not None and not self.use_cispo_loss:
            raise ValueError("is_weight_clip_max has no effect without use_cispo_loss")
        if self.prox_logp_method != "recompute" and self.current_version is None:
            raise ValueError(f"prox_logp_method {self.prox_logp_method!r} needs current_version")
        return self


def check_grpo(config: GrpoConfig, sent: Sent) -> None:
    """Raises UserError for options whose context tensors (`sent`, wire names) are missing or in each other's way."""
    check_policy(config, sent)
    prox, old, versions = (name in sent for name in ("prox_logp_shifted", "old_log_probs_shifted", "versions"))
    method = config.prox_logp_method
    if method != "recompute" and not (versions and old):
        raise UserError(
            f"prox_logp_method {method!r} needs context.versions (the version that sampled each token) and "
            "context.old_log_probs_shifted"
        )
    if method == "loglinear" and prox:
        raise UserError("prox_logp_method 'loglinear' computes what context.prox_logp_shifted holds; send one of them")
    if method == "metrics" and not prox:
        raise UserError("prox_logp_method 'metrics' compares with context.prox_logp_shifted, which is missing")
    if prox and not old:
        raise UserError("context.prox_logp_shifted needs context.old_log_probs_shifted, the sampler's log-probs")
    correction = config.off_policy_correction
    if correction is not None and not old:
        raise UserError("off_policy_correction needs context.old_log_probs_shifted, the sampler's log-probs")
    if prox or method == "loglinear":
        return
    wants: dict[str, Any] = {
        "use_decoupled_loss": config.use_decoupled_loss,
        "behav_imp_weight_cap": config.behav_imp_weight_cap is not None,
        "m2_threshold": config.m2_threshold is not None,
        "off_policy_correction.tis_ratio_type": correction is not None and correction.tis_ratio_type is not None,
    }
    for name, wanted in wants.items():
        if wanted:
            raise UserError(
                f"{name} needs context.prox_logp_shifted, the trainer's log-probs before this step's updates (or "
                "prox_logp_method 'loglinear'); without it the ratio is to the sampler's log-probs already"
            )
