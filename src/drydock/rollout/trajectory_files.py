"""Finding and reading the trajectory files that a user names: single files, a run's folder, or a folder of files."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from drydock.errors import UserError
from drydock.rollout.trajectory import Trajectory

ENDINGS = (".json", ".error")


def read_trajectory(file: Path) -> Trajectory:
    """The trajectory in `file`. Raises UserError naming a file that is none."""
    try:
        return Trajectory.read(file)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except ValidationError as error:
        raise UserError(f"{file} is not a trajectory file: {error.errors()[0]['msg']}") from None


def trajectory_files(paths: Iterable[Path]) -> list[Path]:
    """The files that `paths` name, in order: a file itself, of a run's folder all of its files, of another its own.

    Raises UserError for a folder that holds none.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = files_of_run(path) if (path / "trajectories").is_dir() else _files_in(path, "*")
        if not inside:
            raise UserError(f"{path} holds no trajectory files: give a run's folder, or one with .json files")
        found += inside
    return found


def files_of_run(root: Path) -> list[Path]:
    """Every trajectory file of a run, training and evaluation, in the order of their names."""
    return _files_in(root / "trajectories", "step_*/*/*")


def _files_in(folder: Path, pattern: str) -> list[Path]:
    return sorted(file for file in folder.glob(pattern) if file.suffix in ENDINGS and file.is_file())
