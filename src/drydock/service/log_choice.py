"""Which sub-job's log a call means."""

from typing import Any

from drydock.service.problems import Refusal


def chosen_sub_job(view: dict[str, Any], sub_job_id: str | None, job_type: str | None = None) -> str:
    """The only sub-job of the job that has this id and type (None: any). Raises Refusal 400 when there is a choice."""
    subs = view["sub_jobs"]
    chosen = [
        sub["sub_job_id"]
        for sub in subs
        if sub_job_id in (None, sub["sub_job_id"]) and job_type in (None, sub["job_type"])
    ]
    if len(chosen) != 1:
        names = ", ".join(sub["sub_job_id"] for sub in subs)
        raise Refusal(400, f"sub_job_id: name one sub-job whose log to read ({names})")
    return chosen[0]
