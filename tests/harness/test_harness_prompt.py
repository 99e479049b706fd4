import os
from pathlib import Path

import pytest

from drydock.errors import UserError
from drydock.harness.prompt import DEFAULT_PROMPT_FILE, system_prompt

TOOLS = ("terminal", "finish")


def test_without_a_file_the_shipped_prompt_is_used_word_for_word():
    assert system_prompt(None, TOOLS) == DEFAULT_PROMPT_FILE.read_text().strip()


def test_a_text_file_is_used_word_for_word(tmp_path: Path):
    file = tmp_path / "prompt.md"
    file.write_text("Use {{ braces }} freely.\n")
    assert system_prompt(file, TOOLS) == "Use {{ braces }} freely."


def test_a_template_sees_the_tools(tmp_path: Path):
    file = tmp_path / "prompt.j2"
    file.write_text("Tools: {{ tools | join(', ') }}.\n")
    assert system_prompt(str(file), TOOLS) == "Tools: terminal, finish."


def test_a_changed_file_is_read_again(tmp_path: Path):
    file = tmp_path / "prompt.txt"
    file.write_text("one")
    assert system_prompt(file, TOOLS) == "one"
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert system_prompt(file, TOOLS) == "two"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "cannot read the system prompt file"),
        ("empty.txt", "\n", "is empty"),
        ("broken.j2", "{% if %}", "as system prompt"),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, name: str, content: str | None, message: str):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        system_prompt(tmp_path / name, TOOLS)
    assert name in str(raised.value)
