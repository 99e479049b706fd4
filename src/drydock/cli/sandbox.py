"""`drydock sandbox`: build the root file system, check the machine, remove what a killed driver left."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(
    help="The local sandbox: build its root file system, check this machine, clean up.", no_args_is_help=True
)

CacheDir = Annotated[Path | None, typer.Option(help="Where root file system and layers are kept.")]
StateDir = Annotated[Path | None, typer.Option(help="The sandbox.state_dir of the runs to clean up after.")]


@app.command()
def build(cache_dir: CacheDir = None) -> None:
    """Build the sandbox's root file system from this machine's Debian package sources, unless it is there."""
    from drydock.sandbox.rootfs import build_rootfs, rootfs_path

    console = Console()
    if rootfs_path(cache_dir).is_dir():
        console.print(f"root file system: {rootfs_path(cache_dir)}", soft_wrap=True)
        return
    with console.status("building the sandbox's root file system (about 20 s)"):
        path = build_rootfs(cache_dir)
    console.print(f"root file system: {path}", soft_wrap=True)


@app.command()
def check(cache_dir: CacheDir = None) -> None:
    """Say whether this machine can run the local sandbox; exit code 1 when something is missing."""
    from drydock.sandbox.requirements import check_local

    requirements = check_local(cache_dir)
    table = Table("requirement", "met", "found", "remedy")
    for item in requirements:
        table.add_row(
            item.name, "yes" if item.ok else "no", escape(item.detail), "" if item.ok else escape(item.remedy)
        )
    Console().print(table)
    if not all(item.ok for item in requirements):
        raise typer.Exit(1)


@app.command()
def reap(state_dir: StateDir = None) -> None:
    """Remove the sandboxes of drivers that are no longer running."""
    from drydock.sandbox.locations import driver_state_dir, sandboxes_in
    from drydock.sandbox.reaper import reap as remove

    removed = remove(sandboxes_in(state_dir or driver_state_dir()))
    for line in removed:
        typer.echo(line)
    if not removed:
        typer.echo("nothing to remove")
