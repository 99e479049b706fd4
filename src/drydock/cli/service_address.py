"""Which service a command talks to, and as whom.

The address is `--url`, or that of the service that runs on `--state-dir` (from its service.json), or
DRYDOCK_SERVICE_URL; the token is DRYDOCK_SERVICE_TOKEN, or the one that a run's own service keeps in `--state-dir`.
"""

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from drydock.client import TrainingClient

Url = Annotated[str | None, typer.Option(help="The service's address, else DRYDOCK_SERVICE_URL.")]
StateDir = Annotated[Path | None, typer.Option(help="State folder of a service on this machine, instead of --url.")]
CaFile = Annotated[Path | None, typer.Option(help="Certificate (PEM) to trust, for a service with one of its own.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def open_client(url: str | None, state_dir: Path | None, ca_file: Path | None) -> "TrainingClient":
    """A client of that service, to be entered. Raises UserError when none is named or none runs."""
    from drydock.client import TrainingClient
    from drydock.errors import UserError
    from drydock.service.service_file import token_of

    verify: bool | ssl.SSLContext = True
    if ca_file is not None:
        try:
            verify = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise UserError(f"--ca-file {ca_file} cannot be used: {error}") from error
    address = _address(url, state_dir)
    token = os.environ.get("DRYDOCK_SERVICE_TOKEN") or (token_of(state_dir) if state_dir else None)
    return TrainingClient(address, token=token, verify_ssl=verify)


def _address(url: str | None, state_dir: Path | None) -> str:
    from drydock.errors import UserError
    from drydock.service.service_file import running_service

    if url is not None and state_dir is not None:
        raise UserError("give --url or --state-dir, not both")
    if state_dir is None:
        found = url or os.environ.get("DRYDOCK_SERVICE_URL")
        if not found:
            raise UserError("which service? give --url or --state-dir, or set DRYDOCK_SERVICE_URL")
        return found
    running = running_service(state_dir)
    if running is None:
        raise UserError(f"no service runs on {state_dir}: start it with `drydock service start`")
    if running.url is None:
        raise UserError(f"the service on {state_dir} is starting: try again in a moment")
    return running.url
