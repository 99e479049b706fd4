"""`drydock demo`: the data of the demo's run."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="The demo: a tiny model learns shell tasks.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def prepare(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, demonstrations and the model's first weights.")] = 0,
) -> None:
    """Write tasks, demonstrations, a tiny model and run.toml to FOLDER."""
    from drydock.recipes.shell_tasks.prepare import DemoData
    from drydock.recipes.shell_tasks.prepare import prepare as write

    write(folder, DemoData(seed=seed))
    typer.echo(f"demo data: {folder} (train with: drydock train {folder / 'run.toml'})")
