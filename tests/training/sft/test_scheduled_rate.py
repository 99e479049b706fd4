import pytest

from drydock.training.sft.config import SftConfig
from drydock.training.sft.loop import scheduled_rate


def config_of(**optimizer: object) -> SftConfig:
    policy = {"model": {"path": "model"}, "optimizer_config": {"lr": 1.0, **optimizer}}
    return SftConfig.model_validate({"trainer": {"policy": policy}, "data": {"train": ["data.jsonl"]}})


def test_a_constant_rate_does_not_depend_on_how_long_the_run_is():
    """A resumed run may have more steps; the warm-up that it had begun stays the same."""
    config = config_of(num_warmup_steps=10)
    for steps in (4, 100):
        assert [scheduled_rate(config, step, steps) for step in (1, 4)] == [0.1, 0.4]


def test_a_falling_rate_ends_with_the_run_and_warms_up_before():
    config = config_of(num_warmup_steps=10, scheduler="linear")
    assert [scheduled_rate(config, step, 4) for step in (1, 2, 3, 4)] == pytest.approx([1 / 3, 2 / 3, 1.0, 1.0])
