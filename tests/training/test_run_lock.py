"""Two runs: in one folder the second is refused, in two they go on beside each other."""

from pathlib import Path

import pytest

from drydock.errors import UserError
from drydock.training.run_lock import run_lock


def test_a_folder_is_locked_until_its_run_ends(tmp_path: Path) -> None:
    with (
        run_lock(tmp_path, tmp_path / "run"),
        pytest.raises(UserError, match=r"going on in .*run: wait"),
        run_lock(tmp_path, tmp_path / "run"),
    ):
        raise AssertionError("the lock was given twice")
    with run_lock(tmp_path, tmp_path / "run"), run_lock(tmp_path, tmp_path / "other"):
        pass
    assert list((tmp_path / "runs").iterdir()) == []
