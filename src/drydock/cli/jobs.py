"""`drydock jobs`: the jobs of a training service: list, show, logs, cancel, checkpoints, usage."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from drydock.cli.service_address import CaFile, Json, StateDir, Url, open_client

if TYPE_CHECKING:
    from drydock.client import TrainingClient
    from drydock.wire.rest import Job

app = typer.Typer(help="Jobs of a training service.", no_args_is_help=True)

COMMENT_VARIABLE = "ARCTIC_CORTEX_JOB_COMMENT"

JobId = Annotated[str, typer.Argument(help="The job's id.")]
Comment = Annotated[str | None, typer.Option(help="Jobs with exactly this comment.")]
User = Annotated[str | None, typer.Option(help="Of this user; only an admin sees others.")]


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option(help="One status, or several separated by commas.")] = None,
    comment: Comment = None,
    user: User = None,
    url: Url = None,
    state_dir: StateDir = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Your jobs, oldest first."""
    from drydock.cli.job_tables import show_jobs, shown_status

    async def jobs(client: "TrainingClient") -> "list[Job]":
        found = await client.list_jobs(None, comment, user=user)
        return [job for job in found if not wanted or wanted & {job.status.value, shown_status(job)}]

    wanted = _statuses(status or "")
    found = _with(open_client(url, state_dir, ca_file), jobs)
    if as_json:
        _print_json({"jobs": [job.model_dump(mode="json") for job in found]})
    else:
        show_jobs(found)


@app.command()
def show(
    job_id: JobId, url: Url = None, state_dir: StateDir = None, ca_file: CaFile = None, as_json: Json = False
) -> None:
    """One job: state, sub-jobs and what it used."""
    from drydock.cli.job_tables import show_job

    async def read(client: "TrainingClient") -> "tuple[Job, dict[str, Any]]":
        return await client.get_job(job_id), await client.job_usage(job_id)

    job, usage = _with(open_client(url, state_dir, ca_file), read)
    if as_json:
        _print_json({**job.model_dump(mode="json"), "usage": usage})
    else:
        show_job(job, usage)


@app.command()
def logs(
    job_id: JobId,
    sub_job: Annotated[str | None, typer.Option(help="training, sampling:1 or a whole sub-job id.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    url: Url = None,
    state_dir: StateDir = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """The log of one sub-job: the trainer's unless another is named. JSON: one object a line."""
    from drydock.cli.job_tables import log_line

    async def read(client: "TrainingClient") -> None:
        name = _sub_job_id(await client.get_job(job_id), sub_job)
        async for entry in client.stream_logs(job_id, name, follow=follow):
            print(json.dumps(entry) if as_json else log_line(entry), flush=follow)

    _with(open_client(url, state_dir, ca_file), read)


@app.command()
def cancel(
    job_id: JobId,
    comment: Annotated[str | None, typer.Option(help=f"Your jobs' comment, else {COMMENT_VARIABLE}.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    state_dir: StateDir = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """End a job. One that another user made, or whose comment is not yours, is asked about first."""
    from drydock.cli.job_tables import shown_status

    mine = comment if comment is not None else os.environ.get(COMMENT_VARIABLE)

    async def end(client: "TrainingClient") -> "Job":
        job = await client.get_job(job_id)
        doubts = [] if yes or job.status.terminal else _doubts(job, (await client.whoami()).user, mine)
        if doubts:
            _confirm(job_id, doubts)
        await client.cancel_job(job_id)
        return await client.get_job(job_id)

    job = _with(open_client(url, state_dir, ca_file), end)
    if as_json:
        _print_json(job.model_dump(mode="json"))
    else:
        typer.echo(f"job {job_id} is {shown_status(job)}")


@app.command()
def checkpoints(
    job_id: JobId, url: Url = None, state_dir: StateDir = None, ca_file: CaFile = None, as_json: Json = False
) -> None:
    """A job's checkpoints, oldest first."""
    from drydock.cli.job_tables import show_checkpoints

    found = _with(open_client(url, state_dir, ca_file), lambda client: client.list_checkpoints(job_id))
    if as_json:
        _print_json({"checkpoints": [checkpoint.details for checkpoint in found]})
    else:
        show_checkpoints(found)


@app.command()
def usage(
    job_id: Annotated[str | None, typer.Argument(help="Of this job only.")] = None,
    by: Annotated[str, typer.Option(help="A line for each job, user or day.")] = "job",
    user: User = None,
    since: Annotated[str | None, typer.Option(help="First day, UTC, YYYY-MM-DD.")] = None,
    until: Annotated[str | None, typer.Option(help="Last day, UTC, YYYY-MM-DD.")] = None,
    url: Url = None,
    state_dir: StateDir = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """What was used: GPU or CPU-slot seconds, tokens, storage; and its cost where prices are set."""
    from drydock.cli.job_tables import show_usage
    from drydock.errors import UserError

    if by not in ("job", "user", "day"):
        raise UserError(f"--by {by}: use job, user or day")
    chosen = cast(Literal["job", "user", "day"], by)
    found = _with(
        open_client(url, state_dir, ca_file),
        lambda client: client.usage(chosen, job_id=job_id, user=user, since=since, until=until),
    )
    if as_json:
        _print_json(found)
    else:
        show_usage(found)


def _with[R](client: "TrainingClient", work: "Callable[[TrainingClient], Awaitable[R]]") -> R:
    async def run() -> R:
        async with client:
            return await work(client)

    return asyncio.run(run())


def _statuses(text: str) -> set[str]:
    """The statuses named in a list with commas, as the API or as the list calls them.

    Raises UserError for a word that is none.
    """
    from drydock.cli.job_tables import FINISHED_STATUS
    from drydock.errors import UserError
    from drydock.wire.status import JobStatus

    known = [*JobStatus, FINISHED_STATUS]
    words = {word.strip().lower() for word in text.split(",") if word.strip()}
    if unknown := sorted(words - set(known)):
        raise UserError(f"--status {unknown[0]}: use {', '.join(known)}")
    return words


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2))


def _sub_job_id(job: "Job", asked: str | None) -> str:
    """The sub-job that is meant by a type, a type and an index, or an id; without one the trainer, else the first."""
    from drydock.errors import UserError

    names = [sub.sub_job_id for sub in job.sub_jobs]
    if asked is None:
        return next((sub.sub_job_id for sub in job.sub_jobs if sub.job_type == "training"), names[0])
    for name in (asked, f"{job.job_id}:{asked}", f"{job.job_id}:{asked}:0"):
        if name in names:
            return name
    raise UserError(f"job {job.job_id} has no sub-job {asked!r}; it has {', '.join(names)}")


def _doubts(job: "Job", me: str, my_comment: str | None) -> list[str]:
    """Why this job may be somebody else's."""
    doubts = []
    owner = (job.model_extra or {}).get("submitted_by")
    if owner != me:
        doubts.append(f"it belongs to {owner or 'nobody known'}, and you are {me}")
    if job.comment != my_comment:
        yours = f"yours is {my_comment!r}" if my_comment is not None else "you have none"
        doubts.append(f"its comment is {job.comment!r} and {yours}" if job.comment else f"it has no comment; {yours}")
    return doubts


def _confirm(job_id: str, doubts: list[str]) -> None:
    """Asks; without a terminal it refuses. Raises UserError, or typer.Abort for a no."""
    from drydock.errors import UserError

    why = "; ".join(doubts)
    if not sys.stdin.isatty():
        raise UserError(f"job {job_id} may not be yours: {why}. Give --yes to cancel it all the same")
    typer.confirm(f"Job {job_id} may not be yours: {why}. Cancel it?", abort=True)
