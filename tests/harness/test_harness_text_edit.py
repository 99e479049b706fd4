import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.text_edit import insert_after, lines_of, replace_once, snippet, view

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=5), max_size=6)


@given(before=st.text(max_size=20), old=st.text(min_size=1, max_size=5), new=st.text(max_size=5), after=st.text())
def test_a_replacement_changes_one_place_and_nothing_else(before: str, old: str, new: str, after: str):
    text = before + old + after
    assume(old != new and text.find(old) == text.rfind(old) == len(before))
    assert replace_once(text, old, new) == (before + new + after, before.count("\n") + 1)


@given(lines=LINES, line=st.integers(0, 6), new=LINES.filter(bool), ends=st.booleans())
def test_inserted_lines_stand_after_the_line_and_the_others_as_before(lines, line: int, new, ends: bool):
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    count = len(lines_of(text))
    if line > count:
        with pytest.raises(ToolRefused, match=f"the file has {count} lines"):
            insert_after(text, line, "\n".join(new))
        return
    parts = text.split("\n")
    added = "\n".join(new).removesuffix("\n").split("\n")
    assert insert_after(text, line, "\n".join(new)).split("\n") == [*parts[:line], *added, *parts[line:]]


@pytest.mark.parametrize(
    ("text", "line", "new", "after"),
    [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 2, "x\n", "a\nb\nx\n"),
        ("a\nb", 2, "x", "a\nb\nx"),
        ("", 0, "x", "x\n"),
    ],
)
def test_inserting(text: str, line: int, new: str, after: str):
    assert insert_after(text, line, new) == after


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        ("a\n", "b", "c", "does not stand in the file word for word; nothing was changed"),
        ("a\r\nb\r\n", "a\nb", "c", "the file has CRLF line ends"),
        ("x\ny\nx\n", "x", "c", r"stands in 2 places \(lines 1, 3\)"),
        ("aaa", "aa", "c", r"stands in 2 places \(lines 1, 1\)"),
        ("a", "", "c", "old_str is empty"),
        ("a", "a", "a", "are the same"),
    ],
)
def test_a_replacement_that_is_not_unique_is_refused(text: str, old: str, new: str, reason: str):
    with pytest.raises(ToolRefused, match=reason):
        replace_once(text, old, new)


def test_views_have_line_numbers():
    assert view("a\n\nb\n", None) == "     1\ta\n     2\t\n     3\tb"
    assert view("a\nb\nc", [2, -1]) == "     2\tb\n     3\tc"
    assert view("a\nb\nc", [1, 99]) == "     1\ta\n     2\tb\n     3\tc"
    assert view("", None) == "[the file is empty]"
    assert snippet("".join(f"{n}\n" for n in range(1, 21)), 10, 2).split("\n")[0::9] == ["     6\t6", "    15\t15"]
    for wrong in ([0, 2], [4, -1], [3, 2], [1]):
        with pytest.raises(ToolRefused, match="view_range is"):
            view("a\nb\nc\n", wrong)
