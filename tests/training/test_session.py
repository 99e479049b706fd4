"""What a run's configuration makes of the chat proxy."""

from pathlib import Path
from typing import get_args

import pytest
from builders.chat_families import FAMILIES

from drydock.chat.reply_reader import FORMATS
from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError
from drydock.training.config_file import load_run_config
from drydock.training.plan import RunPlan
from drydock.training.rollout_config import ToolCallFormat
from drydock.training.session import RolloutSession


def session(folder: Path, *overrides: str) -> RolloutSession:
    config = load_run_config(None, ["data.train=tasks", "trainer.policy.model.path=m", *overrides])
    template: ChatTemplate = FAMILIES["qwen3"](folder)
    return RolloutSession(config, RunPlan((), (), (), ()), template, folder)


def test_a_run_can_name_each_tool_call_format() -> None:
    assert sorted(get_args(ToolCallFormat)) == list(FORMATS)


def test_tool_calls_are_read_as_the_template_writes_them_unless_a_format_is_named(tmp_path: Path) -> None:
    assert session(tmp_path).reader.format == "hermes"
    assert session(tmp_path, "generator.tool_call_format=qwen_xml").reader.format == "qwen_xml"
    with pytest.raises(ConfigError, match="tool_call_format"):
        session(tmp_path, "generator.tool_call_format=xml")


def test_the_agent_waits_longer_than_the_proxy_may_take(tmp_path: Path) -> None:
    made = session(tmp_path, "deadlines.sampling_call_s=100", "generator.max_concurrent_calls=3")
    limits = made.proxy_settings(made.config.generator.sampling_params, tmp_path)
    assert limits.max_concurrent_calls == 3
    assert made.settings().agent_kwargs["call_timeout_s"] > limits.admission_deadline_s + limits.call_deadline_s
