import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.harness.observation import cut_middle, render_output, render_stopped


@given(text=st.text(max_size=300), limit=st.integers(min_value=1, max_value=200))
def test_what_is_kept_is_the_start_and_the_end(text: str, limit: int):
    shown = cut_middle(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        head, tail = limit - limit // 2, limit // 2
        assert shown == f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"


@pytest.mark.parametrize(
    ("output", "exit_code", "text"),
    [
        ("a\nb\n", 0, "a\nb"),
        ("", 0, "[no output]"),
        ("\n\n", 0, "[no output]"),
        ("a\n", 1, "a\n[exit code 1]"),
        ("", 127, "[exit code 127]"),
    ],
)
def test_a_command_is_shown_as(output: str, exit_code: int, text: str):
    assert render_output(output, exit_code, 1000) == text


def test_a_stopped_command_shows_what_it_printed():
    assert render_stopped("half\n", 2.5, 1000) == "half\n[stopped: the command ran longer than 2.5 s]"
