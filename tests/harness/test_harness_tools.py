import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders.bash_environment import bash_environment

from drydock.errors import ConfigError
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.settings import HarnessSettings
from drydock.harness.tool_schemas import DEFAULT_TOOLS, TOOL_NAMES, tool_schemas
from drydock.harness.tools import build_tools
from drydock.harness.tools.task_tracker import TrackTasksAction, TrackTasksTool

ALL = [name for name in TOOL_NAMES if name != "persistent_terminal"]


def sandbox(directory: Path) -> SandboxAccess:
    return SandboxAccess(bash_environment(directory), timeout_s=10, max_output_chars=200)


def test_the_tools_of_runs_that_name_none_are_these():
    assert DEFAULT_TOOLS == HarnessSettings().tools == ("terminal", "task_tracker", "finish")
    assert len(json.dumps(tool_schemas(DEFAULT_TOOLS))) == 950


def test_the_schemas_hold_only_what_the_tools_take(tmp_path: Path):
    tools = build_tools(ALL, sandbox(tmp_path), "r")
    assert [tool.to_openai_tool(add_security_risk_prediction=True) for tool in tools.values()] == tool_schemas(ALL)
    assert "security_risk" not in json.dumps(tool_schemas(ALL))
    assert "summary" not in json.dumps(tool_schemas(ALL))
    for name, tool in tools.items():
        properties = tool.to_openai_tool()["function"]["parameters"]["properties"]
        assert set(properties) == set(tool.action_type.model_fields), name


def test_a_schema_is_the_same_object_on_every_call(tmp_path: Path):
    access = sandbox(tmp_path)
    first, second = build_tools(["terminal"], access, "r"), build_tools(["terminal"], access, "r")
    assert first["terminal"].to_openai_tool() is second["terminal"].to_openai_tool()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["terminal", "browser"],
            "unknown tool 'browser'; the agent can be given: terminal, persistent_terminal, file",
        ),
        (["terminal", "persistent_terminal"], "names a tool twice \\(the model sees: terminal, terminal\\)"),
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
