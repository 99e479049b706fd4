"""The section `reward` of a configuration as the rule by which rollouts are graded."""

from pydantic import ValidationError

from drydock.errors import ConfigError
from drydock.rollout.reward import RewardRule
from drydock.training.rollout_config import RewardConfig


def reward_rule(reward: RewardConfig) -> RewardRule:
    """Raises ConfigError for a range or weights that no reward can meet."""
    try:
        return RewardRule(**reward.model_dump())
    except ValidationError as error:
        raise ConfigError(f"reward: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
