"""A job's checkpoints as the client sees them, and fetching an exported one into a folder.

An export names files by address, and each address carries its own short-lived permission: they are fetched without
the client's token, which would otherwise be shown to whatever host the address names. Every file is written beside
its final name and renamed once its size is the announced one.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from drydock.client.call import Call
from drydock.client.transport import Transport
from drydock.errors import ServiceError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of a job; what the server does not tell is None. `details` is the server's whole entry."""

    checkpoint_id: str
    checkpoint_type: str | None
    global_steps: int | None
    avg_loss: float | None
    created_at: str | None
    size_bytes: int | None
    details: dict[str, Any]

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> "Checkpoint":
        """Read one entry of the list."""
        names = ("checkpoint_type", "global_steps", "avg_loss", "created_at", "size_bytes")
        return cls(entry["checkpoint_id"], *(entry.get(name) for name in names), details=dict(entry))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of an exported checkpoint: its path below the checkpoint, where to fetch it, its size."""

    filename: str
    url: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointExport:
    """A checkpoint's files, to be fetched until `expires_at` (ISO-8601)."""

    checkpoint_id: str
    files: list[ExportedFile]
    expires_at: str | None

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> "CheckpointExport":
        """Read the answer to export."""
        files = [ExportedFile(item["filename"], item["url"], int(item["size_bytes"])) for item in answer["files"]]
        return cls(answer["checkpoint_id"], files, answer.get("expires_at"))


async def fetch_files(transport: Transport, call: Call, export: CheckpointExport, folder: Path) -> list[Path]:
    """Fetches the files below `folder`; those that are there with the right size are kept. Raises ServiceError."""
    targets = [_target(call, file, folder) for file in export.files]
    for file, target in zip(export.files, targets, strict=True):
        if target.is_file() and target.stat().st_size == file.size_bytes:
            continue
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        await transport.download(call, file.url, part, file.size_bytes)
        part.replace(target)
    return targets


def _target(call: Call, file: ExportedFile, folder: Path) -> Path:
    path = PurePosixPath(file.filename)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in file.filename or "\0" in file.filename:
        raise ServiceError(f"{call.label}: the server names a file outside the checkpoint: {file.filename!r}")
    return folder.joinpath(*path.parts)
