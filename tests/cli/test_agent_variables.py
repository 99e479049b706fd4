from pathlib import Path

from drydock.cli.agent_variables import read_agent_variables
from drydock.training.rollout_config import AgentConfig

VARIABLES = {
    "HARBOR_AGENT": "mine:Agent",
    "HARBOR_SKILL": "skills/a:/b/SKILL.md:",
    "OPENHANDS_TOOLS": "persistent_terminal, finish",
    "OPENHANDS_SYSTEM_PROMPT_FILE": "prompt.j2",
}


def test_the_recipes_variables_are_read():
    agent = AgentConfig()
    read_agent_variables(agent, VARIABLES)
    assert agent.import_path == "mine:Agent"
    assert agent.skills == [Path.cwd() / "skills/a", Path("/b/SKILL.md")]
    assert agent.tools == ["persistent_terminal", "finish"]
    assert agent.system_prompt_file == Path.cwd() / "prompt.j2"


def test_the_configuration_wins_and_empty_variables_change_nothing():
    given = AgentConfig(tools=["terminal"], skills=[])
    read_agent_variables(given, {**VARIABLES, "HARBOR_AGENT": " "})
    assert (given.tools, given.skills) == (["terminal"], [])
    assert given.import_path == AgentConfig().import_path
    untouched = AgentConfig()
    read_agent_variables(untouched, {})
    assert untouched == AgentConfig()


def test_keys_that_the_chosen_agent_never_sees_are_named():
    assert AgentConfig(tools=["terminal"]).without_effect == []
    assert AgentConfig(kwargs={"depth": 1}).without_effect == ["kwargs"]
    other = AgentConfig(import_path="mine:Agent", kwargs={"depth": 1}, tools=["terminal"], max_seconds=5)
    assert other.without_effect == ["tools", "max_seconds"]
