"""Writing exported rollouts, and saying what was left out and why."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

import typer

from drydock.amount import amount
from drydock.atomic import replace_file
from drydock.errors import UserError
from drydock.rollout.sft_export import conversations_of
from drydock.rollout.trajectory import Trajectory


def export_sft(trajectories: Iterable[Trajectory], output: Path | None, histories: Literal["last", "all"]) -> None:
    """JSON Lines of conversations. Raises UserError when none is left."""
    written = 0
    with _lines_to(output) as out:
        for trajectory in trajectories:
            exported = list(conversations_of(trajectory, histories))
            if not exported:
                _left_out(trajectory.rollout_id, "it has no sampled turn")
            for one in exported:
                if one.conversation is None:
                    _left_out(f"{one.rollout_id} up to turn {one.turn}", one.problem or "")
                    continue
                _write_line(out, one.conversation)
                written += 1
        _check(written)
    _told(amount(written, "conversation"), output)


def export_atif(trajectories: Iterable[Trajectory], folder: Path | None, *, prompt_ids: bool) -> None:
    """Documents: a file each in `folder`, else JSON Lines. Raises UserError when none is left."""
    from drydock.rollout.atif import atif_document

    written = 0
    for trajectory in trajectories:
        if not trajectory.record.turns:
            _left_out(trajectory.rollout_id, "it has no sampled turn")
            continue
        document = atif_document(trajectory, prompt_ids=prompt_ids).to_json_dict()
        if folder is None:
            _write_line(sys.stdout, document)
        else:
            name = f"{trajectory.rollout_id.replace('/', '_')}.atif.json"
            with replace_file(folder / name, durable=False) as temporary:
                temporary.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        written += 1
    _check(written)
    _told(amount(written, "document"), folder)


@contextmanager
def _lines_to(output: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that is there whole or not at all."""
    if output is None:
        yield sys.stdout
        return
    with replace_file(output, durable=False) as temporary, temporary.open("w", encoding="utf-8") as out:
        yield out


def _write_line(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value, ensure_ascii=False) + "\n")


def _left_out(what: str, why: str) -> None:
    typer.echo(f"left out {what}: {why}", err=True)


def _check(written: int) -> None:
    if not written:
        raise UserError("nothing to export: no rollout among these files qualifies")


def _told(written: str, output: Path | None) -> None:
    if output is not None:
        typer.echo(f"{written} in {output}", err=True)
