#!/bin/bash
cat > /app/test_textwrap2.py << 'END'
import pytest
from textwrap2 import wrap


def test_fills_lines_exactly():
    assert wrap("aa bb cc", 5) == ["aa bb", "cc"]
    assert wrap("aa bb cc", 4) == ["aa", "bb", "cc"]


def test_runs_of_blanks():
    assert wrap("a  b\n c", 80) == ["a b c"]


def test_indent():
    assert wrap("aa bb cc", 4, "> ") == ["aa", "> bb", "> cc"]


def test_long_word_and_nothing():
    assert wrap("abcdef g", 3) == ["abcdef", "g"]
    assert wrap("", 3) == []


@pytest.mark.parametrize("width", [0, -1])
def test_width(width):
    with pytest.raises(ValueError):
        wrap("a", width)
END
