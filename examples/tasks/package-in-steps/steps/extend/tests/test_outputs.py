import sys

import pytest

sys.path.insert(0, "/app")
from slug import slugify, unique


@pytest.mark.parametrize(
    ("longest", "expected"), [(None, "one-two-three"), (13, "one-two-three"), (12, "one-two"), (7, "one-two"), (6, "one"), (2, "on")]
)
def test_longest(longest, expected):
    assert slugify("One two, three!", longest=longest) == expected


def test_still_works():
    assert slugify("Crème brûlée") == "creme-brulee"


def test_unique():
    assert unique(["A", "a!", "b", "á"]) == ["a", "a-2", "b", "a-3"]
    assert unique(["a", "a", "a-2"]) == ["a", "a-3", "a-2"]
    assert unique(["", "!", "x"]) == ["item", "item-2", "x"]
    assert unique([]) == []
