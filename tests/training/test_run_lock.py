"""Two runs on one driver: the second is refused and told who the first is."""

import os
from pathlib import Path

import pytest

from drydock.errors import UserError
from drydock.training.run_lock import driver_lock


def test_the_second_run_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with (
        driver_lock(tmp_path, tmp_path / "first"),
        pytest.raises(UserError, match=rf"process {os.getpid()}, folder .*first") as caught,
        driver_lock(tmp_path, tmp_path / "second"),
    ):
        raise AssertionError("the lock was given twice")
    assert "kill -TERM" in str(caught.value)
    with driver_lock(tmp_path, tmp_path / "second"):
        pass
