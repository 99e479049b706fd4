import subprocess
import sys
from pathlib import Path

import pytest


def git(*arguments):
    return subprocess.run(["git", "-C", "/app/repo", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def version_15():
    return git("log", "--format=%H", "--grep=^Version 15$", "main")


def run(*arguments):
    return subprocess.run([sys.executable, "/app/repo/stats.py", *arguments], capture_output=True, text=True).stdout.strip()


def test_answer():
    assert Path("/app/answer.txt").read_text().strip() == version_15()


@pytest.mark.parametrize(("numbers", "median"), [("1 3", 2), ("4 1 3 2", 2.5), ("5", 5), ("9 1 5", 5), ("2 2", 2), ("-4 8", 2)])
def test_median(tmp_path, numbers, median):
    file = tmp_path / "numbers"
    file.write_text(numbers)
    assert float(run(str(file))) == median


def test_main_goes_on():
    assert git("branch", "--show-current") == "main"
    assert git("status", "--porcelain") == ""
    assert git("log", "-1", "--format=%s", "main~1") == "Version 24"
    assert run("--version") == "24"
