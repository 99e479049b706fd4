"""Settings that cannot work together are refused by name; those without effect are warned of."""

import pytest

from drydock.errors import ConfigError
from drydock.finding import Level
from drydock.training.config import RunConfig
from drydock.training.config_file import load_run_config
from drydock.training.preflight.settings import check_settings


def config(*overrides: str) -> RunConfig:
    return load_run_config(None, ["data.train=t", "trainer.policy.model.path=m", *overrides])


def test_the_defaults_fit_each_other() -> None:
    (finding,) = check_settings(config(), 100)
    assert finding.level is Level.PASS


@pytest.mark.parametrize(
    ("overrides", "name", "remedy"),
    [
        (["generator.n_samples_per_prompt=1"], "generator.n_samples_per_prompt", "set it to 2 or more"),
        (["agent.max_sampled_tokens=9"], "generator.max_turns", "lower the turns"),
        (
            ["trainer.policy.optimizer_config.adam_betas=[0.9, 1.0]"],
            "trainer.policy.optimizer_config.adam_betas",
            "give two numbers",
        ),
        (
            ["trainer.policy.optimizer_config.adam_betas=[-0.1, 0.9]"],
            "trainer.policy.optimizer_config.adam_betas",
            "give two numbers",
        ),
    ],
)
def test_what_cannot_work_fails(overrides: list[str], name: str, remedy: str) -> None:
    (finding,) = check_settings(config(*overrides), None)
    assert (finding.level, finding.name) == (Level.FAIL, name)
    assert name in finding.detail
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["trainer.eval_interval=11"], "trainer.eval_interval is 11, but the run has 10 steps"),
        (["trainer.ckpt_interval=11"], "trainer.ckpt_interval is 11, but the run has 10 steps"),
        (["trainer.policy.optimizer_config.num_warmup_steps=11"], "it never reaches 1e-06"),
        (["data.eval=e"], "no evaluation is asked for"),
        (
            [
                "trainer.eval_before_train=true",
                "generator.eval_n_samples_per_prompt=4",
                "generator.eval_sampling_params.temperature=0",
            ],
            "the same rollout each time",
        ),
    ],
)
def test_what_has_no_effect_warns(overrides: list[str], said: str) -> None:
    (finding,) = check_settings(config(*overrides), 10)
    assert finding.level is Level.WARN
    assert said in finding.detail
    assert finding.remedy


@pytest.mark.parametrize(
    "override",
    [
        "generator.num_parallel_generation_workers=0",
        "generator.max_turns=-1",
        "trainer.train_batch_size=0",
        "trainer.max_training_steps=-5",
        "trainer.policy.optimizer_config.lr=inf",
        "trainer.policy.optimizer_config.lr=nan",
        "deadlines.agent_s=inf",
        "service.n_gpus_training=0",
        "generator.sampling_params.top_p=nan",
        "reward.lowest=nan",
    ],
)
def test_numbers_out_of_range_are_refused_by_name(override: str) -> None:
    name = override.partition("=")[0]
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        config(override)


def test_a_mini_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy_mini_batch_size \(3\) must divide train_batch_size \(8\)"):
        config("trainer.policy_mini_batch_size=3")
