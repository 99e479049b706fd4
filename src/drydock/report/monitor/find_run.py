"""Which run is meant: the folder that was named, or the newest one of the usual place."""

from pathlib import Path

from drydock.errors import UserError


def find_run(named: Path | None, runs: Path) -> Path:
    """The folder of a run. Raises UserError where `named` is none, or `runs` holds none."""
    try:
        found = _newest_in(runs) if named is None else named
        if found is None:
            raise UserError(f"there is no run below {runs.resolve()}: name the folder of one (its CKPT_DIR)")
        if not _is_run(found):
            raise UserError(_no_run(found))
    except OSError as error:
        raise UserError(f"{error.filename or named} cannot be read: {error.strerror}") from None
    return found.resolve()


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file()


def _no_run(named: Path) -> str:
    if not named.exists():
        return f"there is no folder {named}; a run has one as soon as its checks before the start are through"
    if not named.is_dir():
        return f"{named} is a file: name the folder of a run (its CKPT_DIR)"
    inside = _newest_in(named)
    hint = f"; there is one in {inside}" if inside else ": name the folder of a run (its CKPT_DIR)"
    return f"{named} is not the folder of a run, it has no config.toml{hint}"


def _newest_in(folder: Path) -> Path | None:
    """Of the runs in a folder the one that wrote last."""
    found = [one for one in folder.iterdir() if _seems_a_run(one)] if folder.is_dir() else []
    return max(found, key=lambda one: (_written(one), one.name), default=None)


def _seems_a_run(folder: Path) -> bool:
    """Whether it is a run; a folder that cannot be looked into is passed over, as nobody named it."""
    try:
        return _is_run(folder)
    except OSError:
        return False


def _written(run: Path) -> float:
    """When the run's metrics, log or configuration were last written."""
    times = []
    for file in (run / "config.toml", run / "metrics.jsonl", *run.glob("*.log")):
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
