import subprocess
import sys
from decimal import Decimal

import pytest

sys.path.insert(0, "/app/repo")


def git(*arguments):
    return subprocess.run(["git", "-C", "/app/repo", *arguments], capture_output=True, text=True, check=True).stdout


def test_merge_commit():
    assert git("log", "-1", "--format=%P", "main").split() == [git("rev-parse", "main^1").strip(), git("rev-parse", "discounts").strip()]
    assert git("log", "--format=%s", "main^1", "-1").strip() == "Round half up"
    assert git("log", "--format=%s", "discounts", "-1").strip() == "Add discounts"
    assert git("status", "--porcelain").strip() == ""
    assert git("branch", "--show-current").strip() == "main"


def test_no_markers():
    for name in ("shop.py", "test_shop.py", "CHANGES.md"):
        assert not any(mark in git("show", f"main:{name}") for mark in ("<<<<<<<", "=======", ">>>>>>>"))


def test_changes():
    assert git("show", "main:CHANGES.md").split("\n")[1:3] == ["- round half up", "- discounts"]


def test_behaviour():
    from shop import total

    assert total(lines=[(1, 0.125)]) == Decimal("0.13")
    assert total([(3, 0.35)], discount=50) == Decimal("0.53")
    assert total([(1, 10)], 100) == 0
    for discount in (-1, 100.5):
        with pytest.raises(ValueError):
            total([], discount)


def test_tests_of_both_sides():
    text = git("show", "main:test_shop.py")
    assert all(f"def {name}(" in text for name in ("test_sum", "test_discount", "test_rounds_half_up"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "/app/repo/test_shop.py"]
    assert subprocess.run(command, cwd="/app/repo").returncode == 0
