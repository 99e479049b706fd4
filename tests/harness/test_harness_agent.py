"""The agent on the real SDK in real sandboxes, with a scripted policy."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from builders.scripted_endpoint import ScriptedEndpoint, call, run_agent

from drydock.errors import ConfigError, TaskError
from drydock.harness import AgentCrashed, End
from drydock.harness.tool_schemas import tool_schemas
from drydock.sandbox.local import LocalEnvironment

COUNT = "builders.agent_tools:CountTool"
REFUSED = "[An error occurred during execution.]\n\n"
"""What the SDK puts before the answer to a call that failed."""

FINISH = call("finish", message="done")


async def test_every_tool_works_in_a_conversation(environment, tmp_path: Path):
    tools = ["persistent_terminal", "file_editor", "think", "task_tracker", COUNT, "finish"]
    endpoint = ScriptedEndpoint(
        [
            call("terminal", command="cd /app; X=1"),
            [call("file_editor", command="create", path="/app/a", file_text="1\n2\n"), call("think", thought="hm")],
            call("file_editor", command="view", path="/app/a", view_range=[2, 2]),
            call("file_editor", command="view", path="a"),
            call("file_editor", command="insert", path="/app/a"),
            call("count", path="a"),
            call("count", path="a", what="bytes"),
            call("count", path="nothing"),
            call("count", what="words"),
            call("terminal", command='echo "$X"; cat a'),
            FINISH,
        ]
    )
    result = await run_agent(endpoint, environment, tmp_path, tools=tools)
    assert endpoint.requests[0]["tools"] == tool_schemas(tools)
    answers = endpoint.answers
    assert answers[:8] == [
        "[no output]",
        "created /app/a (2 lines)",
        "[noted]",
        "     2\t2",
        f"{REFUSED}the path 'a' is not absolute; begin it with /",
        f"{REFUSED}insert needs insert_line",
        "2 lines (call 1)",
        "4 bytes (call 2)",
    ]
    assert answers[8] == f"{REFUSED}nothing cannot be read"
    assert "Error validating tool 'count'" in answers[9]
    assert answers[10] == "1\n1\n2"
    assert (result.end, result.turns, result.refused_calls) == (End.FINISH_TOOL, 11, 1)
    assert (result.sampled_tokens, result.limit) == (110, None)


@pytest.mark.parametrize(
    ("settings", "limit", "turns"),
    [
        ({"max_turns": 2}, "turns", 2),
        ({"max_sampled_tokens": 25}, "tokens", 3),
        ({"max_seconds": 0.5}, "seconds", None),
    ],
)
async def test_a_limit_ends_the_work_between_turns(bash, tmp_path: Path, settings: dict[str, Any], limit, turns):
    endpoint = ScriptedEndpoint([call("terminal", command="echo x >> log; sleep 0.2")])
    result = (
        await run_agent(endpoint, bash, tmp_path, max_turns=30, **settings)
        if limit != "turns"
        else (await run_agent(endpoint, bash, tmp_path, **settings))
    )
    assert (result.end, result.limit, result.submitted) == (End.TURNS_EXHAUSTED, limit, False)
    assert result.turns == len(endpoint.bodies) == result.tool_calls == len((bash.root / "log").read_text()) // 2
    assert result.turns == turns or (turns is None and 1 <= result.turns <= 4)


async def test_the_end_of_the_work_counts_more_than_a_limit_reached_with_it(bash, tmp_path: Path):
    result = await run_agent(ScriptedEndpoint([FINISH]), bash, tmp_path, max_sampled_tokens=1)
    assert (result.end, result.limit) == (End.FINISH_TOOL, None)


async def test_an_exception_of_a_custom_tool_is_the_harness_fault(bash, tmp_path: Path):
    endpoint = ScriptedEndpoint([call("broken")])
    with pytest.raises(AgentCrashed, match="a fault of the tool"):
        await run_agent(endpoint, bash, tmp_path, tools=["builders.agent_tools:BrokenTool"])


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("nosuch.module:Tool", "cannot be imported: No module named 'nosuch'"),
        ("builders.agent_tools:Nothing", "has no 'Nothing'"),
        ("builders.agent_tools:NoArguments", "is no subclass of drydock.harness.custom_tool.CustomTool"),
        ("builders.agent_tools:NamelessTool", "needs a class attribute 'name'"),
        ("builders.agent_tools:SummaryTool", "has an argument 'summary', which the SDK keeps for itself"),
        ("builders.agent_tools:FinishTwin", "calls itself 'finish', the name of a shipped tool"),
    ],
)
def test_a_custom_tool_that_cannot_be_used_is_refused_with_the_reason(tool: str, message: str):
    with pytest.raises(ConfigError, match=message):
        tool_schemas([tool])


def test_the_schema_of_a_custom_tool_is_short():
    assert tool_schemas([COUNT])[0]["function"] == {
        "name": "count",
        "description": "Count the lines or bytes of a file.",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "what": {
                    "type": "string",
                    "enum": ["lines", "bytes"],
                    "default": "lines",
                    "description": "what to count",
                },
            },
            "required": ["path"],
        },
    }


async def test_a_condenser_sums_the_older_half_up(bash, tmp_path: Path):
    def reply(number: int) -> Any:
        return "the summary" if number == 6 else FINISH if number == 9 else call("terminal", command=f"echo {number}")

    endpoint = ScriptedEndpoint([reply(number) for number in range(10)])
    result = await run_agent(endpoint, bash, tmp_path, condense_after_events=12, max_turns=9)
    requests = endpoint.requests
    asked = [number for number, request in enumerate(requests) if "tools" not in request]
    assert asked == [6]
    assert "Result: 1\n" in requests[6]["messages"][0]["content"]
    after = requests[7]["messages"]
    assert [message["role"] for message in after[:2]] == ["system", "user"]
    assert "the summary" in json.dumps(after)
    assert len(after) < len(requests[5]["messages"])
    assert requests[8]["messages"][: len(after)] == after
    assert result.end is End.FINISH_TOOL


SKILL = "---\nname: counting\ndescription: >\n  How to\n  count.\n---\nRun !`touch /tmp/executed-by-the-driver`.\n"


async def test_skills_are_listed_and_can_be_read_but_not_written(environment, tmp_path: Path):
    folder = tmp_path / "all about counting"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "scripts" / "count.sh").write_text("echo counted\n")
    single = tmp_path / "OTHER.md"
    single.write_text("---\nname: other\ndescription: Another.\n---\nText.\n")
    await environment.exec(
        "mkdir -p /tmp/own/b /tmp/own/a; cd /tmp/own; "
        "printf -- '---\\nname: a\\ndescription: Of the task.\\n---\\n' > a/SKILL.md; "
        "printf -- '---\\nname: other\\ndescription: Hidden.\\n---\\n' > b/SKILL.md; chmod -R a+rX ."
    )
    endpoint = ScriptedEndpoint(
        [
            call("terminal", command="cat /skills/counting/SKILL.md; bash /skills/counting/scripts/count.sh"),
            call(
                "terminal", command="stat -c '%a %U' /skills/counting/SKILL.md /skills/counting /skills/other/SKILL.md"
            ),
            call("terminal", command="touch /skills/counting/x /skills/counting/SKILL.md; rm -rf /skills/other; echo"),
            call("terminal", command="cat /skills/other/SKILL.md"),
            FINISH,
        ]
    )
    await run_agent(endpoint, environment, tmp_path, skills=[str(folder), str(single)], skills_dir="/tmp/own")
    prompt = endpoint.requests[0]["messages"][0]["content"]
    assert prompt.endswith(
        "\n\nSkills, instructions for certain kinds of work. Read the file before such work:\n"
        "- counting (/skills/counting/SKILL.md): How to count.\n"
        "- other (/skills/other/SKILL.md): Another.\n"
        "- a (/tmp/own/a/SKILL.md): Of the task."
    )
    assert "tools" in endpoint.requests[0]
    assert endpoint.answers[0] == SKILL + "counted"
    assert endpoint.answers[1] == "444 root\n555 root\n444 root"
    refused = endpoint.answers[2].count("Permission denied") + endpoint.answers[2].count("Read-only file system")
    if isinstance(environment, LocalEnvironment):
        assert refused == 3
        assert endpoint.answers[3].endswith("Text.")
    assert not Path("/tmp/executed-by-the-driver").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# No front\n", "begins with no `---` block"),
        ("---\nname: Bad Name\ndescription: x\n---\n", "name is 'Bad Name'"),
        ("---\nname: fine\n---\n", "needs a description"),
        ("---\nname: [\n---\n", "are no YAML"),
    ],
)
async def test_a_skill_that_is_none_is_refused(bash, tmp_path: Path, text: str, message: str):
    (tmp_path / "SKILL.md").write_text(text)
    with pytest.raises(ConfigError, match=message):
        await run_agent(ScriptedEndpoint([FINISH]), bash, tmp_path, skills=[str(tmp_path)])
    (bash.root / "skills" / "x").mkdir(parents=True)
    (bash.root / "skills" / "x" / "SKILL.md").write_text(text)
    with pytest.raises(TaskError, match=message):
        await run_agent(ScriptedEndpoint([FINISH]), bash, tmp_path, skills_dir=f"{bash.root}/skills")


async def test_two_skills_of_one_name_and_a_missing_one_are_refused(bash, tmp_path: Path):
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(SKILL)
    with pytest.raises(ConfigError, match="two skills are called 'counting'"):
        await run_agent(
            ScriptedEndpoint([FINISH]), bash, tmp_path, skills=[str(tmp_path / "a.md"), str(tmp_path / "b.md")]
        )
    with pytest.raises(ConfigError, match="cannot be read"):
        await run_agent(ScriptedEndpoint([FINISH]), bash, tmp_path, skills=[str(tmp_path / "nothing")])


FIRST_REQUEST = """
import asyncio, os, sys, tempfile
from pathlib import Path
from builders.bash_environment import bash_environment
from builders.scripted_endpoint import ScriptedEndpoint, call, run_agent

async def main():
    endpoint = ScriptedEndpoint([call("finish", message="done")])
    directory = Path(tempfile.mkdtemp())
    environment = bash_environment(directory)
    await environment.start(force_build=False)
    tools = ["persistent_terminal", "file_editor", "think", "task_tracker", "builders.agent_tools:CountTool", "finish"]
    await run_agent(endpoint, environment, directory, tools=tools)
    await environment.stop(delete=True)
    sys.stdout.buffer.write(endpoint.bodies[0])

asyncio.run(main())
"""


def test_a_prompt_holds_nothing_of_the_drivers_clock_home_directory_or_environment(tmp_path: Path):
    home = tmp_path / "home"
    for name in (".openhands/skills/spy.md", ".agents/skills/spy/SKILL.md", ".openhands/SOUL.md", "AGENTS.md"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("---\nname: spy\ndescription: seen\n---\nSPIED\n")
    plain = {name: os.environ[name] for name in ("PATH",)} | {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/"}
    strange = plain | {"HOME": str(home), "TZ": "Asia/Tokyo", "LANG": "ja_JP.UTF-8", "USER": "spy", "LLM_MODEL": "spy"}
    bodies = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(FIRST_REQUEST)], env=env, cwd=cwd, check=True, capture_output=True
        ).stdout
        for env, cwd in ((plain, "/"), (strange, home))
    ]
    assert bodies[0] == bodies[1] != b""
    assert b"SPIED" not in bodies[1]
