"""How rollouts of a step ended, from the beginnings of their files: the tokens, which are most of a file, are not read.

A trajectory file is one JSON object whose `record` comes after everything that is short. Inside a JSON string a
quotation mark has a backslash before it, so the bytes that begin the record cannot be part of any text.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from drydock.report.monitor.step_rows import number

_HEAD_BYTES = 65536
_RECORD = b',"record":{'
_ENDINGS = (".json", ".error")


@dataclass(frozen=True, slots=True)
class RolloutHead:
    """A rollout without its tokens. split: "train" or "eval". replaced: a fresh one took its place."""

    file: Path
    split: str
    task: str
    repetition: int
    outcome: str
    blame: str | None
    error: str | None
    reward: float | None
    advantage: float | None
    turns: int
    replaced: bool

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """None for a file that is gone or no trajectory."""
        try:
            fields = _fields(file)
            return cls(
                file=file,
                split=str(fields.get("split", "")),
                task=str(fields["task"]),
                repetition=int(fields["repetition"]),
                outcome=str(fields["outcome"]),
                blame=_text(fields.get("blame")),
                error=_text(fields.get("error")),
                reward=number(fields.get("reward")),
                advantage=number(fields.get("advantage")),
                turns=int(fields.get("turns") or 0),
                replaced=bool(fields.get("replaced")),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


def rollout_heads(folder: Path) -> list[RolloutHead]:
    """The rollouts whose files are in a folder, by task and repetition; [] for a folder that is not there."""
    try:
        files = [file for file in folder.iterdir() if file.suffix in _ENDINGS and not file.name.startswith(".")]
    except OSError:
        return []
    heads = [head for file in files if (head := RolloutHead.read(file)) is not None]
    return sorted(heads, key=lambda head: (head.task, head.repetition, head.file.name))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _fields(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        place = head.find(_RECORD)
        fields = json.loads(head[:place] + b"}" if place >= 0 else head + stream.read())
    if not isinstance(fields, dict):
        raise ValueError(f"{file} is no trajectory")
    return fields
