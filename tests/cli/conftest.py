"""Data that the tests of several commands begin with."""

from pathlib import Path

import pytest
from builders.demo_run import build_demo_run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the miniature of the demo; not to be changed."""
    folder = tmp_path_factory.mktemp("prepared") / "data"
    build_demo_run(folder)
    return folder
