"""What is suggested for a setting that is not known, in both kinds of run."""

import pytest

from drydock.training.config import RunConfig
from drydock.training.config_file import known_keys
from drydock.training.nearest_key import OTHER_NAMES, suggestion
from drydock.training.sft.config import SftConfig

RL, SFT = known_keys(RunConfig), known_keys(SftConfig)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("trainer.num_steps", "trainer.max_training_steps"),
        ("trainer.max_steps", "trainer.max_training_steps"),
        ("trainer.learning_rate", "trainer.policy.optimizer_config.lr"),
        ("lr", "trainer.policy.optimizer_config.lr"),
        ("trainer.policy.optimizer.lr", "trainer.policy.optimizer_config.lr"),
        ("trainer.batch_size", "trainer.train_batch_size"),
        ("trainer.model", "trainer.policy.model.path"),
        ("generator.max_tokens", "generator.sampling_params.max_generate_length"),
        ("generator.temperature", "generator.sampling_params.temperature"),
        ("generator.num_samples", "generator.n_samples_per_prompt"),
        ("trainer.save_interval", "trainer.ckpt_interval"),
        ("trainer.sede", "trainer.seed"),
        ("generatr.max_turns", "generator.max_turns"),
        ("sandboxx", "sandbox"),
        ("warm_start.0.lrr", "warm_start.0.lr"),
        ("data.trainn", "data.train"),
    ],
)
def test_what_was_meant_is_suggested(typed: str, meant: str) -> None:
    assert suggestion(typed, RL) == f": did you mean {meant}?"


@pytest.mark.parametrize("typed", ["trainer.kl_coef", "trainer.placement", "sandbox.timeout", "generator.backend"])
def test_what_there_is_nothing_like_lists_what_there_is(typed: str) -> None:
    section = typed.partition(".")[0]
    assert suggestion(typed, RL).startswith(f" (known: {section}.")


def test_an_unknown_section_lists_the_sections() -> None:
    assert suggestion("colocate", RL).startswith(" (sections: trainer, ")


def test_a_supervised_run_is_offered_its_own_settings_only() -> None:
    assert suggestion("trainer.num_steps", SFT) == ": did you mean trainer.max_training_steps?"
    assert suggestion("trainer.max_seq_len", SFT) == ": did you mean data.max_length?"
    assert "generator" not in suggestion("generator.max_turns", SFT)


def test_every_name_leads_to_a_setting_that_there_is() -> None:
    assert OTHER_NAMES.keys() <= {*RL, *SFT}
