"""The list of a checkpoint's files, written last: a folder without it, or with other files, is not a checkpoint.

`COMPLETE.json` holds every file's size and SHA-256. Checking sizes costs nothing and is done wherever a checkpoint is
named; checking bytes reads the whole folder and is done before it is loaded. No torch here.
"""

import hashlib
import json
from pathlib import Path

from drydock.errors import EngineError

MARKER = "COMPLETE.json"
CHUNK_BYTES = 2**22


def write_manifest(folder: Path) -> None:
    """List the files of a finished folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: path.relative_to(folder).as_posix() for path in files}
    content = {
        "files": {names[path]: path.stat().st_size for path in files},
        "sha256": {names[path]: sha256_of(path) for path in files},
    }
    (folder / MARKER).write_text(json.dumps(content, indent=1))


def check_complete(folder: Path) -> None:
    """Raises EngineError unless every listed file is there with its size."""
    sizes, _ = _read(folder)
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise EngineError(f"checkpoint {folder} is damaged: {name} is missing or has another size")


def check_content(folder: Path) -> None:
    """Raises EngineError unless every listed file is there, byte by byte as it was written."""
    check_complete(folder)
    for name, digest in _read(folder)[1].items():
        if sha256_of(folder / name) != digest:
            raise EngineError(f"checkpoint {folder} is damaged: {name} has another SHA-256 than when it was written")


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _read(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    try:
        content = json.loads((folder / MARKER).read_text())
        return dict(content["files"]), dict(content["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        raise EngineError(f"{folder} is no complete checkpoint: its {MARKER} is missing or unreadable") from None
