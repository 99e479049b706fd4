import os
from pathlib import Path

import pytest

from drydock.errors import UserError
from drydock.harness.prompt import DEFAULT_PROMPT_FILE, system_prompt

TOOLS = ("terminal", "finish")


def test_without_a_file_the_shipped_prompt_is_used_word_for_word():
    assert system_prompt(None, TOOLS, max_turns=10) == DEFAULT_PROMPT_FILE.read_text().strip()


def test_a_text_file_is_used_word_for_word(tmp_path: Path):
    file = tmp_path / "prompt.md"
    file.write_text("Use {{ braces }} freely.\n")
    assert system_prompt(file, TOOLS, max_turns=10) == "Use {{ braces }} freely."


def test_a_template_sees_the_tools_and_the_turns_and_files_beside_it(tmp_path: Path):
    (tmp_path / "rules.j2").write_text("{% if cli_mode %}Be brief.{% endif %}{{ max_turns }} turns")
    file = tmp_path / "prompt.j2"
    file.write_text("Tools: {{ tools | join(', ') }}. {% include 'rules.j2' %}.\n")
    assert system_prompt(str(file), TOOLS, max_turns=10) == "Tools: terminal, finish. 10 turns."
    assert system_prompt(str(file), TOOLS, max_turns=4) == "Tools: terminal, finish. 4 turns."


def test_a_changed_file_is_read_again(tmp_path: Path):
    file = tmp_path / "prompt.txt"
    file.write_text("one")
    assert system_prompt(file, TOOLS, max_turns=10) == "one"
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert system_prompt(file, TOOLS, max_turns=10) == "two"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "cannot read the system prompt file"),
        ("empty.txt", "\n", "is empty"),
        ("broken.j2", "\n{% if %}", "broken.j2:2 as system prompt: Expected an expression"),
        ("unknown.j2", "Work in {{ workspace }}.", "'workspace' is undefined; a template sees `tools` and `max_turns`"),
        ("includes.j2", "{% include 'nothing.j2' %}", "'nothing.j2' not found"),
        ("raises.j2", "{{ 1 / 0 }}", "division by zero"),
        ("latin.txt", b"Schreib h\xe4llo.", "can't decode"),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, name: str, content: str | bytes | None, message: str):
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message) as raised:
        system_prompt(tmp_path / name, TOOLS, max_turns=10)
    assert name in str(raised.value)
