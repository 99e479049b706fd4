"""`drydock trajectories`: look into what rollouts recorded."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Trajectory files of a run.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def audit(run_folder: Annotated[Path, typer.Argument(help="The run's folder (CKPT_DIR).")]) -> None:
    """Check that every trained token was sampled under its recorded prompt; exit code 1 if one was not."""
    from drydock.errors import UserError
    from drydock.training.run_audit import audit_run_folder

    if not (run_folder / "trajectories").is_dir():
        raise UserError(f"{run_folder} holds no trajectories: give the folder of a run")
    totals = audit_run_folder(run_folder)
    typer.echo(
        f"{totals.trained_tokens} tokens with loss mask 1, {totals.retokenized_tokens} of them re-tokenized, "
        f"{totals.unrecorded_tokens} of them not in the sampler's record"
    )
    if not totals.clean:
        raise typer.Exit(1)
