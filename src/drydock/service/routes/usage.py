"""What was used: over jobs, users or days, and by one job. A user sees their own usage, an admin everybody's."""

from datetime import date

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.access import require_job
from drydock.service.api_doc import documented
from drydock.service.context import Service, service_of
from drydock.service.gate import ROOT
from drydock.service.identity import identity_of, visible_owner
from drydock.service.problems import Refusal, json_response
from drydock.service.usage_report import By, Scope, job_report, report
from drydock.wire.answers import UsageReport

router = APIRouter()


@router.get(
    ROOT + "/usage",
    **documented(
        UsageReport,
        query={
            "by": "job, user or day",
            "job_id": "of this job",
            "user": "of this user (admins)",
            "since": "first UTC day, YYYY-MM-DD",
            "until": "last UTC day, YYYY-MM-DD",
        },
    ),
)
async def usage(request: Request) -> Response:
    """`by` job (default), user or day; of `job_id`, of `user`, `since` and `until` a UTC day (YYYY-MM-DD)."""
    service = service_of(request)
    query = request.query_params
    user = visible_owner(identity_of(request), query.get("user"))
    job_id = query.get("job_id")
    if job_id is not None:
        await require_job(request, job_id)
    by = query.get("by", By.JOB.value)
    if by not in list(By):
        raise Refusal(422, f"by: {by!r} is none of {', '.join(By)}")
    scope = Scope(job_id, user, _day("since", query.get("since")), _day("until", query.get("until")))
    await _counted(service)
    prices = service.settings.prices
    return json_response(await service.store.run(lambda connection: report(connection, By(by), scope, prices)))


@router.get(ROOT + "/{job_id}/usage", **documented(UsageReport))
async def job_usage(request: Request, job_id: str) -> Response:
    """One job's usage as a whole, by sub-job and by day."""
    service = service_of(request)
    await _counted(service)
    prices = service.settings.prices
    return json_response(await service.store.run(lambda connection: job_report(connection, job_id, prices)))


async def _counted(service: Service) -> None:
    """Brings the table up to this moment."""
    await service.requests.all_written()
    await service.usage.tick()


def _day(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError as error:
        raise Refusal(422, f"{name}: {value!r} is not a day like 2026-01-31") from error
