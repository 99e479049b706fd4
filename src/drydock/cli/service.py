"""`drydock service`: the training service by hand."""

import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="The training service.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def start(
    state_dir: Annotated[Path, typer.Option(help="Where jobs, results and checkpoints are kept.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8094,
) -> None:
    """Serve the training API until stopped.

    The bearer token is DRYDOCK_SERVICE_TOKEN, or a random one that is written to STATE_DIR/token.
    """
    from pydantic import SecretStr

    from drydock.service.server import serve
    from drydock.service.settings import ServiceSettings

    token = os.environ.get("DRYDOCK_SERVICE_TOKEN")
    serve(ServiceSettings(host=host, port=port, state_dir=state_dir, token=SecretStr(token) if token else None))
