"""The run that is meant, where other folders beside it cannot be looked into."""

from pathlib import Path

import pytest

from drydock.errors import UserError
from drydock.report.monitor.find_run import find_run

LONGEST_PATH = 4095
"""Bytes that Linux takes as a path; beyond them every look at a file fails, whoever looks."""


def test_a_folder_that_cannot_be_looked_into_hides_no_run(tmp_path: Path) -> None:
    runs = tmp_path
    while len(str(runs)) < LONGEST_PATH - 250:
        runs = runs / ("r" * min(200, LONGEST_PATH - 200 - len(str(runs))))
    run, closed = runs / "own", runs / ("x" * (LONGEST_PATH - len("/config.toml") - len(str(runs))))
    run.mkdir(parents=True)
    closed.mkdir()
    (run / "config.toml").touch()
    with pytest.raises(OSError, match="too long"):
        (closed / "config.toml").is_file()
    assert find_run(None, runs) == run
    with pytest.raises(UserError, match=r"cannot be read: File name too long"):
        find_run(closed, runs)
