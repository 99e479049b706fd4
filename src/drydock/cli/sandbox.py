"""`drydock sandbox`: root file systems, layers, and what is missing; and `drydock reap`."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(
    help="The local sandbox: its root file systems, its layers, what this machine lacks.", no_args_is_help=True
)

CacheDir = Annotated[Path | None, typer.Option(help="Where root file systems and layers are kept.")]
StateDir = Annotated[Path | None, typer.Option(help="The sandbox.state_dir of the runs to clean up after.")]


@app.command()
def build(
    cache_dir: CacheDir = None,
    tarball: Annotated[
        Path | None, typer.Option(help="Unpack this tar archive of a root file system instead of building one.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="With --tarball: what FROM calls it, such as python:3.12-slim.")
    ] = None,
) -> None:
    """Build the sandbox's root file system from this machine's Debian package sources, unless it is there."""
    from drydock.sandbox.rootless import enter_user_namespace

    if image and tarball is None:
        raise typer.BadParameter("--image needs --tarball")
    enter_user_namespace()
    from drydock.sandbox.locations import default_cache_dir
    from drydock.sandbox.rootfs import build_rootfs, rootfs_path
    from drydock.sandbox.rootfs_archive import import_rootfs

    console = Console()
    if tarball is not None:
        with console.status(f"unpacking {tarball}"):
            path = import_rootfs(tarball, cache_dir or default_cache_dir(), image)
        console.print(f"root file system{f' for {image}' if image else ''}: {path}", soft_wrap=True, markup=False)
        return
    if rootfs_path(cache_dir).is_dir():
        console.print(f"root file system: {rootfs_path(cache_dir)}", soft_wrap=True)
        return
    with console.status("building the sandbox's root file system (about 20 s)"):
        path = build_rootfs(cache_dir)
    console.print(f"root file system: {path}", soft_wrap=True)


@app.command()
def export(
    tarball: Annotated[Path, typer.Argument(help="The archive to write; .tar, .tar.gz, .tar.bz2 or .tar.xz.")],
    cache_dir: CacheDir = None,
) -> None:
    """Write the root file system to an archive, for `build --tarball` on a machine without packages."""
    from drydock.sandbox.rootless import enter_user_namespace

    enter_user_namespace()
    from drydock.sandbox.locations import default_cache_dir
    from drydock.sandbox.rootfs_archive import export_rootfs

    export_rootfs(tarball, cache_dir or default_cache_dir())
    typer.echo(f"{tarball}: {tarball.stat().st_size >> 20} MB")


@app.command()
def check(cache_dir: CacheDir = None) -> None:
    """Say whether this machine can run the local sandbox; exit code 1 when something is missing."""
    from drydock.sandbox.requirements import check_local

    requirements = check_local(cache_dir)
    table = Table("requirement", "result", "found", "remedy")
    for item in requirements:
        table.add_row(item.name, item.level, escape(item.detail), escape(item.remedy_needed))
    Console().print(table)
    if not all(item.ok for item in requirements):
        raise typer.Exit(1)


@app.command()
def prune(
    cache_dir: CacheDir = None,
    unused_days: Annotated[
        float | None, typer.Option(min=0, help="Delete layers that no sandbox asked for in as many days.")
    ] = None,
    keep_mb: Annotated[
        float | None, typer.Option(min=0, help="Then delete the oldest until the rest takes no more than this.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete cached layers of Dockerfiles and outdated root file systems; without options, those unused for 30 days.

    What sandboxes stand on stays.
    """
    from drydock.amount import amount
    from drydock.sandbox.rootless import enter_user_namespace

    enter_user_namespace()
    from drydock.sandbox.layer_pruning import prune_layers
    from drydock.sandbox.locations import default_cache_dir

    if unused_days is None and keep_mb is None:
        unused_days = 30
    done = prune_layers(cache_dir or default_cache_dir(), unused_days=unused_days, keep_mb=keep_mb, dry_run=dry_run)
    for verb, layers in (
        ("would be deleted" if dry_run else "deleted", done.deleted),
        ("in use", done.held),
        ("kept", done.kept),
    ):
        size = sum(layer.size_bytes for layer in layers)
        typer.echo(f"{verb}: {amount(len(layers), 'layer')}, {size / (1 << 20):.0f} MB")


@app.command()
def reap(state_dir: StateDir = None, cache_dir: CacheDir = None) -> None:
    """Remove the sandboxes and unfinished layers of drivers that are no longer running."""
    from drydock.errors import SandboxUnavailable
    from drydock.sandbox.rootless import enter_user_namespace

    with contextlib.suppress(SandboxUnavailable):  # then no sandbox but those on the host can have been left
        enter_user_namespace()
    from drydock.sandbox.locations import default_cache_dir, driver_state_dir, sandboxes_in
    from drydock.sandbox.reaper import reap as remove

    removed = remove(sandboxes_in(state_dir or driver_state_dir()), cache_dir or default_cache_dir())
    for line in removed:
        typer.echo(line)
    if not removed:
        typer.echo("nothing to remove")
