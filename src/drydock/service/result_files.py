"""Results with tensors, kept as DSSST1 frames in files, at most so many bytes of them.

The oldest give way; a request whose result gave way says so (410) and keeps its status. Methods touch the disk: call
them off the event loop, from any thread.
"""

import threading
from collections import deque
from collections.abc import Collection
from pathlib import Path

from drydock.service.problems import Refusal
from drydock.wire.blob import Bytes


class ResultFiles:
    """The files under one folder, which is made when missing."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._max_bytes = max_bytes
        found = sorted(((path.stat(), path.name) for path in folder.iterdir()), key=lambda item: item[0].st_mtime)
        self._sizes = deque((name, stat.st_size) for stat, name in found)
        self._total = sum(size for _, size in self._sizes)
        self._lock = threading.Lock()

    def write(self, request_id: str, frame: Bytes) -> str:
        """Writes a frame and drops the oldest others beyond the limit; the file's name."""
        name = f"{request_id}.dssst1"
        (self._folder / name).write_bytes(frame)
        with self._lock:
            self._sizes.append((name, len(frame)))
            self._total += len(frame)
            while self._total > self._max_bytes and len(self._sizes) > 1:
                oldest, size = self._sizes.popleft()
                (self._folder / oldest).unlink(missing_ok=True)
                self._total -= size
        return name

    def remove(self, names: Collection[str]) -> None:
        """Removes the files with these names."""
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        gone = set(names)
        with self._lock:
            self._total -= sum(size for name, size in self._sizes if name in gone)
            self._sizes = deque((name, size) for name, size in self._sizes if name not in gone)

    def read(self, name: str) -> bytes:
        """The frame in a file. Raises Refusal 410 when it gave way to newer ones."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError as error:
            raise Refusal(410, f"the result in {name} was dropped to make room for newer ones") from error
