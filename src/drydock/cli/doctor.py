"""`drydock doctor`: what works on this machine, what works with less than it could, what does not, and the remedy."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from drydock.finding import Finding, Level

type Check = Callable[[], list[Finding]]

_COLOURS = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def areas() -> dict[str, Check]:
    """What can be checked, by name, in the order in which it is shown."""
    from drydock.sandbox.leftovers import check_leftovers
    from drydock.sandbox.requirements import check_local

    return {"sandbox": lambda: [*check_local(), *check_leftovers()]}


def doctor(
    names: Annotated[list[str] | None, typer.Argument(metavar="[AREA]...", help="What to check: sandbox.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
) -> None:
    """Check this machine. Exit code 1 when something fails; warnings do not count."""
    checks = areas()
    unknown = sorted(set(names or ()) - set(checks))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is no area; there are {', '.join(checks)}")
    found = [(name, item) for name in (names or checks) for item in checks[name]()]
    if as_json:
        rows = [{"area": area, **asdict(item), "remedy": item.remedy_needed} for area, item in found]
        typer.echo(json.dumps(rows, indent=1))
    else:
        table = Table("area", "check", "result", "found", "remedy")
        for area, item in found:
            colour = _COLOURS[item.level]
            result = f"[{colour}]{item.level}[/]"
            table.add_row(area, item.name, result, escape(item.detail), escape(item.remedy_needed))
        Console().print(table)
    if not all(item.ok for _, item in found):
        raise typer.Exit(1)
