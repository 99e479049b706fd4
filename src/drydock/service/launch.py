"""Starting a request from a JSON call, once per Idempotency-Key, written down before it is answered."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body
from drydock.service.context import service_of
from drydock.service.held import answer_started
from drydock.service.request_record import Outcome, RequestRecord

type Work = Callable[[RequestRecord], Awaitable[Outcome]]


async def launch(request: Request, job_id: str, kind: str, prepare: Callable[[bytes], Awaitable[Work]]) -> Response:
    """Answers with the request that this call became; `prepare` checks the body and gives the work."""
    service = service_of(request)
    data = await request.body()
    key, sha256 = body.idempotency(request, data)
    record = await service.requests.find(job_id, key, sha256)
    if record is None:
        work = await prepare(data)
        record = await service.requests.find(job_id, key, sha256) or service.requests.start(
            job_id, kind, work, idempotency_key=key, body_sha256=sha256
        )
        await service.requests.written(record)
    return await answer_started(request, service.requests, record, service.settings.max_wait_s)
