"""Who the caller is to this service."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.api_doc import documented
from drydock.service.gate import ROOT
from drydock.service.identity import identity_of
from drydock.service.problems import json_response
from drydock.wire.answers import Identity

router = APIRouter()


@router.get(ROOT + "/whoami", **documented(Identity))
async def whoami(request: Request) -> Response:
    """User and role of the token that the call carries."""
    identity = identity_of(request)
    return json_response({"user": identity.user, "role": identity.role.value})
