"""The file in which a rollout's turns are written down before their replies leave: one JSON line a turn."""

from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from drydock.proxy.record import LoggedTurn


class TurnLog:
    """A JSONL file, made with its first line and owned by one rollout; without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    @property
    def enabled(self) -> bool:
        """Whether lines go anywhere."""
        return self._path is not None

    def append(self, turn: LoggedTurn) -> None:
        """Write one line and hand it to the operating system; raises OSError."""
        if self._path is None:
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(turn.model_dump_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_turn_log(path: Path) -> list[LoggedTurn]:
    """The turns in a log, none where there is no such file; ends before a line that was not written whole."""
    turns: list[LoggedTurn] = []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return turns
    for line in lines:
        try:
            turns.append(LoggedTurn.model_validate_json(line))
        except ValidationError:
            break
    return turns
