"""The service's own description, at a path that needs no token."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.gate import OPENAPI_PATH
from drydock.service.openapi import document
from drydock.service.problems import json_response

router = APIRouter()


@router.get(OPENAPI_PATH, include_in_schema=False)
async def openapi(request: Request) -> Response:
    return json_response(document(request.app))
