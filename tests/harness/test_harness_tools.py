import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders.bash_environment import bash_environment

from drydock.errors import ConfigError
from drydock.harness.settings import HarnessSettings
from drydock.harness.shell import SandboxShell
from drydock.harness.tool_schemas import TOOL_NAMES, tool_schemas
from drydock.harness.tools import build_tools
from drydock.harness.tools.task_tracker import TrackTasksAction, TrackTasksTool


def test_the_schemas_hold_only_what_the_tools_take(tmp_path: Path):
    shell = SandboxShell(bash_environment(tmp_path), rollout_id="r", command_timeout_s=1, max_output_chars=100)
    tools = build_tools(TOOL_NAMES, shell)
    assert [tool.to_openai_tool(add_security_risk_prediction=True) for tool in tools.values()] == tool_schemas(
        TOOL_NAMES
    )
    assert "security_risk" not in json.dumps(tool_schemas(TOOL_NAMES))
    assert "summary" not in json.dumps(tool_schemas(TOOL_NAMES))
    for name, tool in tools.items():
        properties = tool.to_openai_tool()["function"]["parameters"]["properties"]
        assert set(properties) == set(tool.action_type.model_fields), name


def test_a_schema_is_the_same_object_on_every_call(tmp_path: Path):
    shell = SandboxShell(bash_environment(tmp_path), rollout_id="r", command_timeout_s=1, max_output_chars=100)
    first, second = build_tools(["terminal"], shell), build_tools(["terminal"], shell)
    assert first["terminal"].to_openai_tool() is second["terminal"].to_openai_tool()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["terminal", "browser"], "unknown tool 'browser'; the agent can be given: terminal, task_tracker, finish"),
        (["finish", "finish"], "names a tool twice"),
        ([], "the tool list is empty"),
    ],
)
def test_a_wrong_tool_list_is_refused_by_name(names: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        tool_schemas(names)


def test_settings_refuse_a_wrong_tool_list():
    with pytest.raises((ValueError, ConfigError), match="unknown tool 'browser'"):
        HarnessSettings(tools=("browser",))


async def test_the_task_tracker_shows_the_plan_it_was_given():
    tool = TrackTasksTool.fresh()
    assert (await tool.executor.run(TrackTasksAction())).text == "the task list is empty"
    plan = {"command": "plan", "task_list": [{"title": "look", "status": "done"}, {"title": "write", "notes": "a.txt"}]}
    shown = await tool.executor.run(TrackTasksAction.model_validate(plan))
    assert shown.text == "1. [x] look\n2. [ ] write (a.txt)"
    assert (await tool.executor.run(TrackTasksAction(command="view"))).text == shown.text


def test_schemas_and_observations_are_importable_without_the_sdk():
    code = (
        "import sys, drydock.harness.tool_schemas, drydock.harness.observation, drydock.harness.settings;"
        "print([name for name in ('openhands', 'litellm', 'harbor', 'torch') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout.strip() == "[]"
