"""Paths of the API that this service knows and does not serve yet: 501, which clients do not repeat."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.gate import ROOT
from drydock.service.problems import Refusal

router = APIRouter()


@router.post(ROOT + "/{job_id}/generate-stream")
@router.post(ROOT + "/{job_id}/checkpoints/{checkpoint_id}:export")
@router.delete(ROOT + "/{job_id}/checkpoints/{checkpoint_id}")
async def not_served(request: Request) -> Response:
    raise Refusal(501, f"{request.method} {request.url.path.removeprefix(ROOT)} is not served yet")
