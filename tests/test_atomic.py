"""Files and folders that appear whole or not at all."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from drydock.atomic import create_folder, replace_file
from drydock.errors import UserError


def break_off(writing: AbstractContextManager[Path]) -> None:
    with writing as temporary:
        (temporary / "half" if temporary.is_dir() else temporary).write_text("half")
        raise RuntimeError


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_only_when_the_block_ends_well(tmp_path: Path, durable: bool):
    path = tmp_path / "new" / "file.json"
    with replace_file(path, durable=durable) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(RuntimeError):
        break_off(replace_file(path, durable=durable))
    assert path.read_text() == "first"
    assert [file.name for file in path.parent.iterdir()] == ["file.json"]


def test_an_unfinished_file_matches_no_pattern_of_finished_ones(tmp_path: Path):
    with replace_file(tmp_path / "file.json") as temporary:
        temporary.write_text("")
        assert temporary.suffix == ".tmp"
        assert list(tmp_path.glob("[!.]*")) == []


def test_a_folder_appears_whole_and_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "folder"
    with pytest.raises(RuntimeError):
        break_off(create_folder(path))
    assert list(tmp_path.iterdir()) == []
    with create_folder(path) as temporary:
        (temporary / "a").write_text("whole")
    assert (path / "a").read_text() == "whole"
    with pytest.raises(UserError, match="exists already"), create_folder(path):
        pass
