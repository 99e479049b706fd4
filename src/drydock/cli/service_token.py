"""`drydock service token`: make, list and revoke the tokens of a service, whether it runs or not."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.service_address import Json

if TYPE_CHECKING:
    from drydock.service.store import Store

app = typer.Typer(help="Tokens: who may call the service, as which user, with which role.", no_args_is_help=True)

StateDir = Annotated[Path, typer.Option(help="The service's state folder.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(envvar="DRYDOCK_SERVICE_DATABASE_URL", show_envvar=True, help="The service's, if it has one."),
]


@app.command()
def create(
    state_dir: StateDir,
    user: Annotated[str, typer.Option(help="User name; jobs belong to the user of the token that made them.")],
    role: Annotated[str, typer.Option(help="user (own jobs), admin (all jobs) or viewer (reads own jobs).")] = "user",
    expires_days: Annotated[
        float | None, typer.Option(help="Days that it is good for; for good when left out.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it: this once, since only its hash is kept. A running service accepts it in 2 s."""
    from drydock.errors import UserError
    from drydock.service.identity import Role
    from drydock.service.tokens import create_token

    if role not in list(Role):
        raise UserError(f"role {role!r}: use one of {', '.join(Role)}")
    token, row = _in_store(state_dir, database_url, lambda store: create_token(store, user, Role(role), expires_days))
    if as_json:
        shown = {key: value for key, value in row.items() if key not in ("sha256", "revoked_at")}
        typer.echo(json.dumps({"token": token, **shown}))
        return
    typer.echo(token)
    typer.echo(f"{row['token_id']}: {user}, {role}; it cannot be shown again", err=True)


@app.command("list")
def list_(state_dir: StateDir, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """All tokens that were ever made, without the tokens themselves."""
    from drydock.cli.tables import moment, show_table
    from drydock.service.tokens import list_tokens

    rows = _in_store(state_dir, database_url, list_tokens)
    if as_json:
        typer.echo(json.dumps({"tokens": rows}))
        return
    lines = [
        (row["token_id"], row["user"], row["role"], *map(moment, (row["created_at"], row["expires_at"])), _state(row))
        for row in rows
    ]
    show_table(("token", "user", "role", "made", "expires", "state"), lines)


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="Its id, from `token list`.")],
    state_dir: StateDir,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a token worthless; a running service refuses it within 2 s."""
    from drydock.service.tokens import revoke_token

    _in_store(state_dir, database_url, lambda store: revoke_token(store, token_id))
    typer.echo(f"{token_id} is revoked")


def _in_store[T](state_dir: Path, database_url: str | None, work: Callable[["Store"], Awaitable[T]]) -> T:
    from drydock.errors import UserError
    from drydock.service.settings import ServiceSettings
    from drydock.service.store import Store

    async def run() -> T:
        settings = ServiceSettings.model_validate({"state_dir": state_dir, "database_url": database_url})
        try:
            settings.state_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the state folder {state_dir} cannot be used: {error}; name another") from error
        store = await Store.open(settings.database)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _state(row: dict[str, Any]) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    return "expired" if row["expires_at"] is not None and row["expires_at"] <= time.time() else "valid"
