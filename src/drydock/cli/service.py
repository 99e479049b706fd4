"""`drydock service`: the training service by hand: start, status, stop, and its tokens.

Here the environment is read: DRYDOCK_SERVICE_TOKEN (the operator's token, taken out of the environment so that nothing
that the service starts inherits it) and DRYDOCK_SERVICE_DATABASE_URL.
"""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from drydock.cli import service_token

app = typer.Typer(help="The training service.", no_args_is_help=True)
app.add_typer(service_token.app, name="token")

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
NOT_RUNNING = 1
"""Exit code of `status` when no service runs on the folder."""

StateDir = Annotated[Path, typer.Option(help="The service's state folder.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]


@app.command()
def start(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Further settings, key=value: rate_limit_per_s=50 pool.H200=8")
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Where jobs, results and checkpoints are kept.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; options and words win over it.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one. Default: 8094.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM): serve https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar="DRYDOCK_SERVICE_DATABASE_URL", show_envvar=True, help="postgresql://user:password@host/name"
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once it listens; it goes on without you.")] = False,
) -> None:
    """Serve the training API until stopped.

    DRYDOCK_SERVICE_TOKEN is the operator's token; others are made with `drydock service token create`. Without any
    token the service listens on this machine only.
    """
    from drydock.cli.service_config import load_service_settings
    from drydock.service.child import start_detached
    from drydock.service.server import TOKEN_VARIABLE, serve

    options = {
        "state_dir": state_dir,
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "database_url": database_url,
        "token": os.environ.pop(TOKEN_VARIABLE, None) or None,
    }
    os.environ.pop("DRYDOCK_SERVICE_DATABASE_URL", None)
    given = load_service_settings(config, options, settings or [])
    if "port" not in given.model_fields_set:
        given = given.model_copy(update={"port": 8094})
    if not detach:
        serve(given)
        return
    running = start_detached(given, START_TIMEOUT_S)
    typer.echo(f"drydock service listens on {running.url} (pid {running.pid})")


@app.command()
def status(state_dir: StateDir, as_json: Json = False) -> None:
    """Say whether a service runs on the folder, where, and whether it answers; exit code 1 when none runs."""
    from drydock.service.service_file import running_service

    running = running_service(state_dir)
    if running is None:
        found: dict[str, object] = {"running": False}
        text = f"no service runs on {state_dir}"
    else:
        answers = running.url is not None and asyncio.run(_answers(running.url))
        found = {"running": True, "pid": running.pid, "url": running.url, "answers": answers}
        found["uptime_s"] = round(time.time() - running.started_at, 1)
        where = f"listens on {running.url}" if running.url else "is starting"
        quiet = "" if answers or running.url is None else " but does not answer"
        text = f"drydock service (pid {running.pid}) {where}{quiet}"
    typer.echo(json.dumps(found) if as_json else text)
    if running is None:
        raise typer.Exit(NOT_RUNNING)


@app.command()
def stop(state_dir: StateDir) -> None:
    """End the service that runs on the folder, and its jobs; nothing to do when none runs."""
    from drydock.errors import DeadlineExceeded, UserError
    from drydock.service.service_file import running_service

    running = running_service(state_dir)
    if running is None:
        typer.echo(f"no service runs on {state_dir}")
        return
    try:
        os.kill(running.pid, signal.SIGTERM)
    except PermissionError:
        raise UserError(f"the service (pid {running.pid}) is another user's process: stop it as that user") from None
    except ProcessLookupError:
        pass  # it has just ended
    ends = time.monotonic() + STOP_TIMEOUT_S
    while running_service(state_dir) is not None:
        if time.monotonic() > ends:
            raise DeadlineExceeded(f"the service (pid {running.pid}) to end", STOP_TIMEOUT_S, "see its service.jsonl")
        time.sleep(0.1)
    typer.echo(f"drydock service (pid {running.pid}) has ended")


async def _answers(url: str) -> bool:
    """Whether the service's health path answers; nothing secret is sent, so any certificate will do."""
    import httpx

    try:
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=5) as client:
            return (await client.get(f"{url}/healthz")).status_code == 200
    except httpx.HTTPError:
        return False
