import pytest

from drydock.errors import ConfigError
from drydock.rollout.reward import RewardRule
from drydock.training.config_file import load_run_config
from drydock.training.reward_config import reward_rule
from drydock.training.rollout_config import RewardConfig

NEEDED = ["data.train=t", "trainer.policy.model.path=m"]


def test_the_section_is_the_rule() -> None:
    assert set(RewardConfig.model_fields) == set(RewardRule.model_fields)
    assert reward_rule(RewardConfig()) == RewardRule()
    run = load_run_config(None, [*NEEDED, "reward.weights.tests=1", "reward.weights.style=0.5", "reward.highest=1.5"])
    assert reward_rule(run.reward) == RewardRule(weights={"tests": 1.0, "style": 0.5}, highest=1.5)


def test_a_rule_that_cannot_be_met_is_the_users() -> None:
    run = load_run_config(None, [*NEEDED, "reward.lowest=1", "reward.highest=0"])
    with pytest.raises(ConfigError, match=r"reward: lowest .1. must be less than highest .0."):
        reward_rule(run.reward)
