"""Files and folders that appear whole or not at all: written under a temporary name, then renamed.

The temporary name begins with a dot and ends in `.tmp`, so that no pattern of finished files matches it.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drydock.errors import UserError


@contextmanager
def replace_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on leaving without an error it takes the place of `path`.

    durable: have the content on disk before the rename, so that a loss of power cannot leave an empty file either.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        if durable:
            _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def create_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`; on leaving without an error it is renamed to `path`.

    Raises UserError when `path` exists already: a finished folder is never overwritten.
    """
    if path.exists():
        raise UserError(f"{path} exists already; choose another name or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _flush(file)
        temporary.rename(path)
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
