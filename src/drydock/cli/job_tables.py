"""Jobs, checkpoints and usage as people read them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drydock.cli.tables import quantity, show_pairs, show_table
from drydock.client.checkpoints import Checkpoint
from drydock.wire.rest import Job

_MEBIBYTE = 1 << 20


FINISHED_STATUS = "finished"
"""What is shown for a job that its client cancelled because its work was done; the API says `cancelled`."""


def shown_status(job: Job) -> str:
    """The status as people are told it."""
    return FINISHED_STATUS if job.finished else job.status.value


def show_jobs(jobs: Iterable[Job]) -> None:
    """One line a job."""
    columns = ("job", "name", "status", "user", "created", "sub-jobs", "comment", "reason")
    show_table(
        columns,
        [
            (
                job.job_id,
                job.name,
                shown_status(job),
                _extra(job, "submitted_by"),
                _time(job.created_at),
                ", ".join(sub.sub_job_id.partition(":")[2] for sub in job.sub_jobs),
                job.comment,
                job.reason,
            )
            for job in jobs
        ],
    )


def show_job(job: Job, usage: Mapping[str, Any]) -> None:
    """A job with its sub-jobs and what each used."""
    show_pairs(
        (
            ("job", job.job_id),
            ("name", job.name),
            ("status", shown_status(job)),
            ("reason", job.reason),
            ("user", _extra(job, "submitted_by")),
            ("comment", job.comment),
            ("hardware", job.hardware),
            ("created", _time(job.created_at)),
            ("updated", _time(job.updated_at)),
        )
    )
    show_table(
        ("sub-job", "status", "model"), [(sub.sub_job_id, sub.status.value, sub.model_name) for sub in job.sub_jobs]
    )
    lines = [("whole job", usage), *((sub.get("sub_job_id"), sub) for sub in usage.get("sub_jobs") or ())]
    _show_amounts("sub-job", lines)


def show_checkpoints(checkpoints: Iterable[Checkpoint]) -> None:
    """One line a checkpoint."""
    show_table(
        ("checkpoint", "type", "step", "loss", "size", "created"),
        [
            (
                one.checkpoint_id,
                one.checkpoint_type,
                None if one.global_steps is None else str(one.global_steps),
                None if one.avg_loss is None else f"{one.avg_loss:.4f}",
                None if one.size_bytes is None else f"{one.size_bytes / _MEBIBYTE:,.1f} MiB",
                _time(one.created_at),
            )
            for one in checkpoints
        ],
    )


def show_usage(usage: Mapping[str, Any]) -> None:
    """One line a job, user or day, and the total."""
    key = {"job": "job_id"}.get(usage["by"], usage["by"])
    lines = [(line.get(key), line) for line in usage["usage"]]
    _show_amounts(usage["by"], [*lines, ("total", usage["total"])])


def log_line(entry: Mapping[str, Any]) -> str:
    """One entry of a sub-job's log."""
    if "_raw" in entry:
        return str(entry["_raw"])
    message = entry.get("msg", entry.get("message", ""))
    line = f"{_time(entry.get('ts'))} {entry.get('level', '')} {message}"
    return f"{line}\n{entry['exception']}" if entry.get("exception") else line


def _show_amounts(first: str, lines: Sequence[tuple[str | None, Mapping[str, Any]]]) -> None:
    meters = [name for name in lines[-1][1].get("meters") or {} if any(_meter(line, name) for _, line in lines)]
    costs = any("cost" in line for _, line in lines)
    columns = (first, *(name.replace("_", " ") for name in meters), *(("cost",) if costs else ()))
    rows = [
        (name, *(quantity(_meter(line, meter)) for meter in meters), *((_cost(line),) if costs else ()))
        for name, line in lines
    ]
    show_table(columns, rows, title="usage")


def _meter(line: Mapping[str, Any], name: str) -> float:
    return float((line.get("meters") or {}).get(name, 0.0))


def _cost(line: Mapping[str, Any]) -> str:
    return quantity(float(line.get("cost", 0.0)))


def _extra(job: Job, key: str) -> str | None:
    value = (job.model_extra or {}).get(key)
    return str(value) if value is not None else None


def _time(text: str | None) -> str:
    """An ISO-8601 time to the second, without its zone, which is UTC."""
    return (text or "")[:19].replace("T", " ")
