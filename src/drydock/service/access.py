"""Whose job a call touches: the one place where other users' jobs are refused.

`job_access` stands before every route with a `{job_id}`; routes that name a second job (a checkpoint's source) ask
`require_job` for it.
"""

from fastapi import Request

from drydock.service import body
from drydock.service.context import service_of
from drydock.service.identity import Identity, Role, identity_of
from drydock.service.problems import Refusal

_READS = frozenset({"GET", "HEAD"})
_READING_OPERATIONS = frozenset({"tail-logs"})


async def job_access(request: Request) -> None:
    """Dependency of every router. Raises Refusal: 404 unknown job, 403 another user's or a role that only reads."""
    identity = identity_of(request)
    if request.method not in _READS and not await _only_reads(request, identity):
        identity.require_changes()
    job_id = request.path_params.get("job_id")
    if job_id is not None:
        await require_job(request, job_id)


async def require_job(request: Request, job_id: str) -> None:
    """Raises Refusal: 404 for an unknown job, 403 for one that the caller may not see."""
    owner = await service_of(request).jobs.owner(job_id)
    if not identity_of(request).owns(owner):
        raise Refusal(403, f"job {job_id} belongs to another user: your token reaches only your own jobs")


async def require_source(request: Request, job_id: str, where: str) -> None:
    """Raises Refusal: 422 naming the field `where` for an unknown job, 403 for another user's."""
    try:
        await require_job(request, job_id)
    except Refusal as refusal:
        if refusal.status == 404:
            raise Refusal(422, f"{where}: {refusal.message}") from refusal
        raise


async def _only_reads(request: Request, identity: Identity) -> bool:
    """Whether a POST changes nothing; asked for viewers alone, so that nobody else's body is read twice."""
    if identity.role is not Role.VIEWER or not request.url.path.endswith("/operation"):
        return False
    try:
        parsed = body.json_object(await request.body())
    except Refusal:
        return False
    return parsed.get("operation_type") in _READING_OPERATIONS
