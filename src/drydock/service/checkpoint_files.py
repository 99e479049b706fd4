"""The files of a checkpoint folder: those that its manifest names, and the manifest itself.

The engine writes `COMPLETE.json` last, with every file's size. Nothing outside it is ever handed out, whatever name a
caller asks for.
"""

import json
from pathlib import Path

from drydock.service.problems import Refusal

MANIFEST = "COMPLETE.json"


def listed(folder: Path) -> dict[str, int]:
    """File name (relative, with '/') to size in bytes, the manifest last. Raises Refusal 410 for a damaged folder."""
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
        sizes = {str(name): int(size) for name, size in files.items() if not _leads_out(str(name))}
        sizes = {name: size for name, size in sizes.items() if (folder / name).is_file()}
        return {**sizes, MANIFEST: (folder / MANIFEST).stat().st_size}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(410, f"checkpoint {folder.name}: its files are gone or damaged") from error


def size_of(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(listed(folder).values())


def file_in(folder: Path, name: str) -> Path:
    """The file called `name`. Raises Refusal 404 for one that the manifest does not name."""
    if name not in listed(folder):
        raise Refusal(404, f"checkpoint {folder.name} has no file {name!r}")
    return folder / name


def _leads_out(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/")
