"""mini-swe-agent, as it is published and with its own configuration, repairs a program through the proxy."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.scripted_sampler import scripted

from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, RolloutRecord, audit

BROKEN = "def mean(values):\n    return sum(values) / (len(values) - 1)\n"


def bash(command: str) -> str:
    return f'<tool_call>\n{{"name": "bash", "arguments": {{"command": "{command}"}}}}\n</tool_call>'


CHECK = f"{sys.executable} -c 'import stats; print(stats.mean([2, 4, 6]))'"
REPLIES = [
    f"THOUGHT: I look first.\n\n{bash('ls && cat stats.py')}",
    f"I run it, and look at what surrounds it.\n{bash(CHECK)}{bash('wc -l stats.py')}",
    bash("sed -i 's/ - 1//; s/(len(values))/len(values)/' stats.py"),
    bash("false"),
    bash(CHECK),
    f"Done.\n{bash('echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT')}",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "stats.py").write_text(BROKEN)
    return folder


@pytest.fixture
def agent_of(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes the agent in the project's folder; keyword arguments go to each of its calls."""
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import yaml
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.config import builtin_config_dir
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    def make(**call: Any) -> DefaultAgent:
        config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
        config["model"]["model_kwargs"] |= call
        model = LitellmModel(model_name="openai/policy", cost_tracking="ignore_errors", **config["model"])
        own = {name: value for name, value in config["agent"].items() if name != "mode"}
        return DefaultAgent(model, LocalEnvironment(cwd=str(project), **config["environment"]), **own)

    return make


async def run(replies: list[str], template: ChatTemplate, agent_of: Callable[..., Any]) -> tuple[RolloutRecord, Any]:
    """The record of a conversation in which the policy says `replies`, and how the agent ended."""
    sampler = scripted(template, replies)
    settings = ProxySettings(context_tokens=40_000, max_new_tokens=400)
    async with ChatProxy(template, HermesParser(), sampler, settings) as proxy:
        session = proxy.open_rollout("r")
        agent = agent_of(api_base=session.base_url, api_key=session.api_key, temperature=0.0)
        outcome = await asyncio.to_thread(agent.run, "mean is wrong for [2, 4, 6]")
        record = await session.close()
    assert len(sampler.calls) == len(record.turns) == len(replies)
    assert record.overridden == {"temperature": len(replies)}
    assert audit(record).clean
    return record, outcome


async def test_it_solves_its_task_on_one_branch(
    template: ChatTemplate, project: Path, agent_of: Callable[..., Any]
) -> None:
    record, outcome = await run(REPLIES, template, agent_of)
    assert outcome["exit_status"] == "Submitted"
    assert (project / "stats.py").read_text() == BROKEN.replace("(len(values) - 1)", "len(values)")
    assert record.branch_reasons == {}
    (sample,) = record.samples
    assert sample.turn_indices == list(range(len(REPLIES)))
    text = template.decode(sample.token_ids)
    for reply in REPLIES:
        assert f"<|im_start|>assistant\n{reply}<|im_end|>" in text
    assert '"output": "6.0\\n"' in text
    assert '"output": "4.0\\n"' in text


async def test_a_turn_that_it_drops_from_the_history_is_a_branch_with_that_reason(
    template: ChatTemplate, project: Path, agent_of: Callable[..., Any]
) -> None:
    record, outcome = await run(["I would rather talk than act.", REPLIES[-1]], template, agent_of)
    assert outcome["exit_status"] == "Submitted"
    assert record.branch_reasons == {"turn_dropped": 1}
    first, second = record.samples
    assert "I would rather talk than act." in template.decode(first.token_ids)
    assert "I would rather talk than act." not in template.decode(second.token_ids)
    assert (first.turn_indices, second.turn_indices) == ([0], [1])
