"""First prompts that do not fit are named task by task; turns that cannot be reached are refused."""

from pathlib import Path

import pytest
from builders.tasks import write_task
from builders.tiny_tokenizer import build_tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from drydock.chat.template import ChatTemplate
from drydock.errors import TaskError
from drydock.finding import Finding, Level
from drydock.harness.tool_schemas import tool_schemas
from drydock.training.config import RunConfig
from drydock.training.config_file import load_run_config
from drydock.training.preflight.prompts import check_prompts, first_prompt_ids, turns_finding
from drydock.training.task_set import Task

SYSTEM = "You work in a shell."
TOOLS = tool_schemas(["terminal", "finish"])


def config(context: int, *overrides: str) -> RunConfig:
    base = ["data.train=t", "trainer.policy.model.path=m", f"generator.max_input_length={context}"]
    return load_run_config(None, [*base, "generator.sampling_params.max_generate_length=32", *overrides])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    return ChatTemplate.load(build_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    short, long = (
        write_task(tmp_path / name, instruction=text) for name, text in (("short", "a"), ("long", "b " * 60))
    )
    return [Task("short", short), Task("long", long)]


def lengths(tasks: list[Task], template: ChatTemplate) -> list[int]:
    return [len(first_prompt_ids(task.path, template, SYSTEM, TOOLS)) for task in tasks]


def found(context: int, tasks: list[Task], template: ChatTemplate, *overrides: str) -> list[Finding]:
    return check_prompts(config(context, "generator.max_turns=2", *overrides), tasks, template, SYSTEM, TOOLS)


def test_prompts_pass_warn_and_fail_at_exact_lengths(tasks: list[Task], template: ChatTemplate) -> None:
    short, long = lengths(tasks, template)
    assert found(long + 100, tasks, template)[0].level is Level.PASS
    assert found(long + 32, tasks, template)[0].level is Level.PASS
    tight = found(long + 31, tasks, template)[0]
    assert tight.level is Level.WARN
    assert f"long ({long})" in tight.detail
    assert f"to {long + 32} or more" in tight.remedy
    (full,) = found(long, tasks, template)
    assert full.level is Level.FAIL
    assert f"in 1 of 2 tasks: long ({long})" in full.detail
    (both,) = found(short, tasks, template)
    assert f"in 2 of 2 tasks: long ({long}), short ({short})" in both.detail


def test_a_task_in_steps_counts_with_its_longest(template: ChatTemplate, tmp_path: Path) -> None:
    task = write_task(tmp_path / "steps", toml='[[steps]]\nname = "one"\n\n[[steps]]\nname = "two"\n')
    for name, text in (("one", "a"), ("two", "b " * 60)):
        (task / "steps" / name).mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text(text + "\n")
    single = write_task(tmp_path / "single", instruction="b " * 60)
    assert (
        lengths([Task("s", task), Task("o", single)], template)[0]
        >= len(first_prompt_ids(single, template, SYSTEM, TOOLS)) - 1
    )


def test_more_turns_than_the_context_has_room_for_are_refused(tasks: list[Task], template: ChatTemplate) -> None:
    _, long = lengths(tasks, template)
    last = found(long + 64, tasks, template, "generator.max_turns=500")[-1]
    assert (last.level, last.name) == (Level.FAIL, "turns")
    possible = int(last.remedy.split("lower max_turns to ")[1].split()[0])
    assert found(long + 64, tasks, template, f"generator.max_turns={possible}")[-1].level is Level.PASS
    assert found(long + 64, tasks, template, f"generator.max_turns={possible + 1}")[-1].level is Level.FAIL


@given(context=st.integers(2, 5000), turns=st.integers(1, 200), prompt=st.integers(1, 4999), between=st.integers(0, 40))
def test_turns_are_possible_when_one_token_each_fits(context: int, turns: int, prompt: int, between: int) -> None:
    prompt = min(prompt, context - 1)
    needed = prompt + turns + (turns - 1) * between
    settings = config(40_960)
    settings.generator.max_input_length, settings.generator.max_turns = context, turns
    assert turns_finding(settings, prompt, between).ok == (needed <= context)


@pytest.mark.parametrize("broken", [b"\xff", None])
def test_an_instruction_that_cannot_be_read_is_the_tasks_fault(
    tasks: list[Task], template: ChatTemplate, broken: bytes | None
) -> None:
    file = tasks[1].path / "instruction.md"
    file.unlink() if broken is None else file.write_bytes(broken)
    with pytest.raises(TaskError, match=f"the instruction of {tasks[1].path} cannot be read"):
        found(4096, tasks, template)


def test_what_is_not_counted_is_said(tasks: list[Task], template: ChatTemplate) -> None:
    assert "MCP" not in found(2000, tasks, template)[0].detail
    with (tasks[0].path / "task.toml").open("a") as file:
        file.write('\n[[environment.mcp_servers]]\nname = "s"\ntransport = "stdio"\ncommand = "true"\n')
    detail = found(2000, tasks, template)[0].detail
    assert detail.endswith("; not counted: the tools of MCP servers, in 1 of 2 tasks")
