"""`drydock serve`: a model, checkpoint or adapter behind an OpenAI-compatible endpoint, in one command."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from drydock.cli.served_model import ServedModel
    from drydock.client import TrainingClient

START_DEADLINE_S = 1800.0
POLL_S = 2.0


def serve(
    model: Annotated[str, typer.Argument(help="Model folder, hub id, checkpoint folder, or a folder with an adapter.")],
    name: Annotated[str, typer.Option(help="What clients call the model.")] = "policy",
    adapter: Annotated[list[str] | None, typer.Option(help="Further adapters of the same base, NAME=FOLDER.")] = None,
    base: Annotated[str | None, typer.Option(help="Base of an adapter, else the one its configuration names.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    max_seq_len: Annotated[int | None, typer.Option(min=2, help="Longest prompt and answer, in tokens.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; by default what the device is good at.")
    ] = None,
    idle_timeout_s: Annotated[int, typer.Option(min=0, help="End when nobody has called for so long; 0: never.")] = 0,
    state_dir: Annotated[Path | None, typer.Option(help="Keep logs and usage here. Default: nowhere.")] = None,
) -> None:
    """Serve a model until stopped; prints the base URL for OpenAI clients.

    The API key is DRYDOCK_SERVICE_TOKEN, or a random one that is printed.
    """
    from drydock.cli.served_model import find_served_model

    served = find_served_model(model, base, adapter or ())
    block: dict[str, Any] = {"adapters": served.further}
    names = [name, *(f"{name}:{key}" for key in sorted(served.further))]
    if served.policy is not None:
        block["policy_adapter"] = served.policy
        names.insert(1, f"{name}:base")
    if max_seq_len is not None:
        block["max_seq_len"] = max_seq_len
    config: dict[str, Any] = {"job_type": "sampling", "model_name": served.source, "inference_config": block}
    if dtype is not None:
        config["dtype"] = dtype
    body = {"job_id": name, "idle_timeout_seconds": idle_timeout_s, "sub_job_configs": [config]}
    with contextlib.ExitStack() as stack:
        if state_dir is None:
            state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drydock-serve-")))
        asyncio.run(_serve(served, body, names, state_dir, host, port))


async def _serve(
    model: "ServedModel", body: dict[str, Any], names: list[str], state_dir: Path, host: str, port: int
) -> None:
    from pydantic import SecretStr
    from rich.console import Console

    from drydock.client import TrainingClient
    from drydock.errors import JobFailed
    from drydock.report.progress import RunProgress
    from drydock.service.embedded import EmbeddedService
    from drydock.service.server import TOKEN_VARIABLE
    from drydock.wire.rest import JobCreate

    given = os.environ.pop(TOKEN_VARIABLE, None)
    token = SecretStr(given) if given else None
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with (
        EmbeddedService(state_dir, token=token, host=host, port=port) as service,
        TrainingClient(service.base_url, token=service.token) as client,
    ):

        async def served() -> None:
            with RunProgress(Console(stderr=True, highlight=False, soft_wrap=True)) as progress:
                progress.waiting(f"{model.title} to be loaded")
                job = await client.create_job(JobCreate.model_validate(body))
                try:
                    await client.wait_for_job(job.job_id, START_DEADLINE_S)
                except JobFailed as error:
                    why = (await client.get_job(job.job_id)).reason
                    raise JobFailed(f"{model.title} cannot be served: {why}{model.remedy}") from error
            typer.echo(f"base URL  {service.base_url}/v1")
            typer.echo(f"API key   {TOKEN_VARIABLE if given else service.token.get_secret_value()}")
            typer.echo(f"models    {', '.join(names)}")
            await _until_over(client, job.job_id)

        await _first_of(served(), service.ended(), stopped.wait())


async def _first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Until one of them has ended: raises what it raised; the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_over(client: "TrainingClient", job_id: str) -> None:
    """Returns when the job was ended for being idle; raises ServiceError when it ended otherwise."""
    from drydock.errors import ServiceError

    while True:
        job = await client.get_job(job_id)
        if job.status.terminal:
            break
        await asyncio.sleep(POLL_S)
    if not (job.reason or "").startswith("idle_timeout"):
        raise ServiceError(f"the model is no longer served: job {job_id} is {job.status}: {job.reason}")
    typer.echo(f"ended: {job.reason}")
