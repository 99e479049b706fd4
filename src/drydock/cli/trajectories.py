"""`drydock trajectories`: look into what rollouts recorded, check it, and take it elsewhere."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Trajectory files of a run.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(help="Trajectory files, or a run's folder for all of its own.")]


class ExportFormat(StrEnum):
    """Forms that trajectories can be written in."""

    ATIF = "atif"
    SFT = "sft"


class Histories(StrEnum):
    """Which histories of a rollout become conversations."""

    LAST = "last"
    ALL = "all"


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A trajectory file (.json or .error), or a folder, to list its files.")],
    turn: Annotated[int | None, typer.Option(help="This turn alone, a line for every token.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model folder or hub id whose tokenizer spells the tokens; else the run's.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long stretches of prompt.")] = False,
    color: Annotated[bool | None, typer.Option(help="Whether to use colours; else where the output can.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs; tokens only with --turn.")] = False,
) -> None:
    """Every turn of a rollout: tokens by mask and log-prob, branches and their reasons, times."""
    from rich.console import Console

    from drydock.cli.trajectory_listing import list_folder
    from drydock.errors import UserError
    from drydock.report.trajectory_facts import find_turn, rollout_facts, teller, token_facts, turn_facts
    from drydock.report.trajectory_page import PROMPT_CHARS, rollout_page, turn_page
    from drydock.report.trajectory_tokenizer import tokenizer_for
    from drydock.rollout.trajectory_files import read_trajectory

    if file.is_dir():
        list_folder(file)
        return
    trajectory = read_trajectory(file)
    tokenizer = tokenizer_for(file, model)
    tell = teller(tokenizer)
    found = None if turn is None else find_turn(trajectory, turn)
    if turn is not None and found is None:
        raise UserError(f"{file} has no turn {turn}; it has {len(trajectory.record.turns)}, counted from 0")
    if as_json:
        facts = (
            rollout_facts(trajectory) if found is None else {**turn_facts(*found), "tokens": token_facts(*found, tell)}
        )
        typer.echo(json.dumps(facts, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True, force_terminal=color, color_system="256" if color else "auto")
    if tokenizer is None:
        Console(stderr=True, soft_wrap=True).print("tokens are shown as ids: name the model's tokenizer with --model")
    lines = rollout_page(trajectory, tell, None if full else PROMPT_CHARS) if found is None else turn_page(*found, tell)
    for line in lines:
        console.print(line)


@app.command()
def export(
    files: Files,
    format_: Annotated[ExportFormat, typer.Option("--format", help="atif: Harbor's. sft: for drydock sft.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="sft: a file. atif: a folder. Else standard output.")
    ] = None,
    min_reward: Annotated[float | None, typer.Option(help="Only rollouts with at least this reward.")] = None,
    histories: Annotated[Histories, typer.Option(help="sft: the last history of a rollout, or all.")] = Histories.LAST,
    prompt_ids: Annotated[bool, typer.Option("--prompt-ids", help="atif: all prompt tokens of each turn.")] = False,
) -> None:
    """Write rollouts in another form, one JSON line each; ATIF into a folder: one file each."""
    from drydock.cli.trajectory_export import export_atif, export_sft
    from drydock.rollout.trajectory_files import read_trajectory, trajectory_files

    trajectories = (read_trajectory(file) for file in trajectory_files(files))
    chosen = (
        trajectory
        for trajectory in trajectories
        if min_reward is None or (trajectory.reward is not None and trajectory.reward >= min_reward)
    )
    if format_ is ExportFormat.SFT:
        export_sft(chosen, output, histories.value)
    else:
        export_atif(chosen, output, prompt_ids=prompt_ids)


@app.command()
def audit(run_folder: Annotated[Path, typer.Argument(help="The run's folder (CKPT_DIR).")]) -> None:
    """Check that every trained token was sampled under its recorded prompt, and every branch has a reason.

    Exit code 1 if not.
    """
    from drydock.amount import amount
    from drydock.errors import UserError
    from drydock.training.run_audit import audit_run_folder

    if not (run_folder / "trajectories").is_dir():
        raise UserError(f"{run_folder} holds no trajectories: give the folder of a run")
    totals = audit_run_folder(run_folder)
    typer.echo(f"{amount(totals.trained_tokens, 'token')} with loss mask 1, {totals.faults}")
    if not totals.clean:
        raise typer.Exit(1)
