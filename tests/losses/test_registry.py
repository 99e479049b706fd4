import pytest

from drydock.engine.batch import OUTPUTS
from drydock.errors import ConfigError
from drydock.losses import LOSSES, GrpoConfig, OffPolicyCorrection, resolve_loss
from drydock.wire.loss_names import ELSEWHERE, LABEL_LOSSES, LOSS_SETTINGS, POSTS


def test_settings_are_read_under_their_wire_names():
    entry, config = resolve_loss("grpo", {"importance_sampling_level": "sequence", "eps_clip": 3e-4, "c_clip": None})
    assert entry.name == "grpo"
    assert config == GrpoConfig(importance_sampling_level="sequence", eps_clip=3e-4)
    _, config = resolve_loss("ap_grpo", {"off_policy_correction": {"tis_ratio_type": "token"}})
    assert config.off_policy_correction == OffPolicyCorrection(tis_ratio_type="token")


def test_the_table_without_torch_names_the_same_losses_keys_and_posts():
    keys = {name: set(entry.config.model_fields) for name, entry in LOSSES.items()}
    assert {name: set(settings) for name, settings in LOSS_SETTINGS.items()} == keys
    assert set(LABEL_LOSSES) == {name for name, entry in LOSSES.items() if entry.reads_labels}
    assert not set(ELSEWHERE) & set(LOSSES)
    assert set(POSTS) == set(OUTPUTS)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("grop", {}, "did you mean 'grpo'"),
        ("os.system", {}, "unknown loss_fn 'os.system'"),
        ("verl_grpo", {}, "its masks are aligned with the response"),
        ("gspo", {}, "importance_sampling_level 'sequence'"),
        ("grpo", {"eps_clp": 0.1}, "unknown setting 'eps_clp' (did you mean 'eps_clip'?)"),
        ("grpo", {"c_clip": 0.5}, "c_clip"),
        ("grpo", {"loss_agg_mode": "mean"}, "loss_agg_mode"),
        ("grpo", {"importance_sampling_level": "row"}, "importance_sampling_level"),
        ("grpo", {"aux_ce_weight": 1.0}, "unknown setting 'aux_ce_weight'"),
        ("grpo", {"off_policy_correction": {"tis": "token"}}, "off_policy_correction.tis"),
        ("grpo", {"off_policy_correction": {"geo_mask_low": 2.0}}, "geo_mask_low 2.0 must be below geo_mask_high"),
        ("grpo_echo_v1", {}, "setting 'aux_ce_weight' is required"),
        ("causal_cross_entropy", {"eps_clip": 0.1}, "unknown setting 'eps_clip'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(name: str, settings: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        resolve_loss(name, settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "both"),
    [
        ("grpo", {"use_cispo_loss": True, "use_sapo_loss": True}, ("use_cispo_loss", "use_sapo_loss")),
        ("grpo", {"use_cispo_loss": True, "c_clip": 3.0}, ("use_cispo_loss", "c_clip")),
        ("grpo", {"use_sapo_loss": True, "c_clip": 3.0}, ("use_sapo_loss", "c_clip")),
        ("grpo", {"use_sapo_loss": True, "use_decoupled_loss": True}, ("use_sapo_loss", "use_decoupled_loss")),
        ("grpo", {"is_weight_clip_max": 3.0}, ("is_weight_clip_max", "use_cispo_loss")),
        ("grpo", {"prox_logp_method": "loglinear"}, ("prox_logp_method", "current_version")),
        (
            "grpo",
            {"behav_imp_weight_cap": 2.0, "off_policy_correction": {"tis_ratio_type": "token"}},
            ("behav_imp_weight_cap", "off_policy_correction.tis_ratio_type"),
        ),
        ("dpo", {"loss_type": "ipo", "label_smoothing": 0.1}, ("label_smoothing", "loss_type")),
        ("distillation", {"direction": "forward_topk", "max_ratio": 2.0}, ("max_ratio", "direction")),
    ],
)
def test_options_that_exclude_each_other_are_refused_naming_both(
    name: str, settings: dict[str, object], both: tuple[str, str]
):
    with pytest.raises(ConfigError) as caught:
        resolve_loss(name, settings)
    assert all(word in str(caught.value) for word in both)
