"""The service's figures for Prometheus, at `/metrics` outside the API's prefix; any accepted token reads them."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.context import service_of
from drydock.service.figures import collect
from drydock.service.gate import METRICS_PATH
from drydock.service.metrics import CONTENT_TYPE

router = APIRouter()


@router.get(
    METRICS_PATH,
    response_class=Response,
    responses={200: {"description": "Figures", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Calls, jobs, room, open requests, workers and tokens, in Prometheus' text format."""
    service = service_of(request)
    await collect(service)
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)
