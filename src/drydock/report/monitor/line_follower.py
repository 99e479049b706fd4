"""Whole lines of a file that others write to, each read once.

A line that is half written is given out once its end is there. A file that was replaced or cut off (a run that goes on
from a checkpoint drops the records of later steps) is read from its beginning, and the reader says so.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from drydock.errors import UserError

_MARK_BYTES = 256


@dataclass(frozen=True, slots=True)
class NewLines:
    """anew: what was given out before does not hold any more. lines: without their line breaks."""

    anew: bool
    lines: list[bytes]


@dataclass(slots=True)
class LineFollower:
    """Reads what is new at each `poll`; a file that is not there has no lines."""

    file: Path
    _identity: tuple[int, int] | None = None
    _read: int = 0
    _mark: bytes = b""
    _rest: bytes = b""

    def poll(self) -> NewLines:
        """The whole lines since the last call. Raises UserError for a file that cannot be read."""
        try:
            with self.file.open("rb") as stream:
                return self._poll(stream)
        except FileNotFoundError:
            was_there = self._identity is not None
            self._begin(None)
            return NewLines(was_there, [])
        except OSError as error:
            raise UserError(f"{self.file} cannot be read: {error.strerror}") from None

    def _poll(self, stream: BinaryIO) -> NewLines:
        status = os.fstat(stream.fileno())
        found = (status.st_dev, status.st_ino)
        anew = found != self._identity or not self._goes_on(stream)
        if anew:
            self._begin(found)
        stream.seek(self._read)
        data = stream.read()
        self._read += len(data)
        self._mark = (self._mark + data)[-_MARK_BYTES:]
        *lines, self._rest = (self._rest + data).split(b"\n")
        return NewLines(anew, lines)

    def _goes_on(self, stream: BinaryIO) -> bool:
        """Whether the last bytes that were read are still where they were."""
        stream.seek(self._read - len(self._mark))
        return stream.read(len(self._mark)) == self._mark

    def _begin(self, identity: tuple[int, int] | None) -> None:
        self._identity, self._read, self._mark, self._rest = identity, 0, b"", b""
