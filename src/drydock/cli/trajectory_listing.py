"""What a folder of trajectories holds, for who names a folder where one file is shown."""

import re
from collections import Counter
from pathlib import Path

import typer

from drydock.amount import amount
from drydock.cli.tables import show_table
from drydock.errors import UserError
from drydock.rollout.trajectory_files import read_trajectory

MOST_FILES = 64
"""Of so many files each is read and told about; of more only their folders are."""
_DEPTHS = ("*", "*/*", "*/*/*")
_NAME = re.compile(r".+_\d+(\.json|(\.try\d+)?\.error)")


def list_folder(folder: Path) -> None:
    """Prints the rollouts in a run's folder, a step's, or any other. Raises UserError when there are none."""
    root = folder / "trajectories" if (folder / "trajectories").is_dir() else folder
    files = sorted(file for depth in _DEPTHS for file in root.glob(depth) if _NAME.fullmatch(file.name))
    if not files:
        raise UserError(
            f"{folder} is a folder without trajectory files (<task>_<repetition>.json): give a file, or a run's folder "
            "to list its files"
        )
    if len(files) > MOST_FILES:
        _list_folders(files)
    else:
        _list_files(files)
    typer.echo(f"{amount(len(files), 'rollout')}; show one with: drydock trajectories show {files[0]}")


def _list_files(files: list[Path]) -> None:
    rows = []
    for file in files:
        found = read_trajectory(file)
        reward = "" if found.reward is None else f"{found.reward:g}"
        rows.append((str(file), found.outcome.value, reward, str(len(found.record.turns))))
    show_table(("file", "outcome", "reward", "turns"), rows)


def _list_folders(files: list[Path]) -> None:
    """A line a folder, in the order of the step's numbers."""
    whole = Counter(file.parent for file in files)
    broken = Counter(file.parent for file in files if file.suffix == ".error")
    folders = sorted(whole, key=lambda folder: (len(folder.parent.name), str(folder)))
    show_table(
        ("folder", "rollouts", "of them broken"),
        [(str(folder), str(whole[folder]), str(broken[folder] or "")) for folder in folders],
    )
