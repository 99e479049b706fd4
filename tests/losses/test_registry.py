import pytest

from drydock.errors import ConfigError
from drydock.losses import GrpoConfig, resolve_loss


def test_settings_are_read_under_their_wire_names():
    entry, config = resolve_loss("grpo", {"importance_sampling_level": "sequence", "eps_clip": 3e-4, "c_clip": None})
    assert entry.name == "grpo"
    assert config == GrpoConfig(importance_sampling_level="sequence", eps_clip=3e-4)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("grop", {}, "did you mean 'grpo'"),
        ("os.system", {}, "unknown loss_fn 'os.system'"),
        ("grpo", {"eps_clp": 0.1}, "unknown setting 'eps_clp' (did you mean 'eps_clip'?)"),
        ("grpo", {"c_clip": 0.5}, "c_clip"),
        ("grpo", {"loss_agg_mode": "mean"}, "loss_agg_mode"),
        ("grpo", {"importance_sampling_level": "row"}, "importance_sampling_level"),
        ("causal_cross_entropy", {"eps_clip": 0.1}, "unknown setting 'eps_clip'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(name: str, settings: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        resolve_loss(name, settings)
    assert message in str(caught.value)
