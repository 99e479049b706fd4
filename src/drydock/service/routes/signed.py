"""Files of an exported checkpoint, fetched by a signed address: no token, an end, and byte ranges.

Everything below `SIGNED` passes the gate without a token, so every such path is answered here and nowhere else: this
router stands first and takes all methods.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from drydock.service import checkpoint_files
from drydock.service.api_doc import OCTETS, STATUSES
from drydock.service.context import service_of
from drydock.service.gate import ROOT, SIGNED
from drydock.service.problems import Refusal
from drydock.wire.answers import Problem

router = APIRouter()


@router.get(
    SIGNED + "/{job_id}/checkpoints/{checkpoint_id}/{filename:path}",
    response_class=Response,
    responses={
        200: {"description": "The file", "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}},
        206: {"description": "The byte ranges asked for"},
        **{status: {"model": Problem, "description": STATUSES[status]} for status in (403, 404, 422)},
        416: {"description": "The file has no such bytes"},
    },
    openapi_extra={
        "security": [],
        "parameters": [
            {"name": name, "in": "query", "required": True, "schema": {"type": "string"}}
            for name in ("expires", "signature")
        ],
    },
)
async def download(request: Request, job_id: str, checkpoint_id: str, filename: str) -> Response:
    """One file of a checkpoint, whole or the byte ranges asked for."""
    service = service_of(request)
    query = request.query_params
    path = _path(job_id, checkpoint_id, filename)
    service.signed_urls.check(path, query.get("expires", ""), query.get("signature", ""))
    folder = await service.checkpoints.find(job_id, checkpoint_id, unknown_status=404)
    file = await asyncio.to_thread(checkpoint_files.file_in, folder, filename)
    return FileResponse(file, media_type="application/octet-stream", filename=file.name)


@router.api_route(SIGNED + "/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
async def nothing_else(rest: str) -> Response:
    raise Refusal(404, "no such signed address")


def file_url(request: Request, job_id: str, checkpoint_id: str, filename: str, expires_at: int) -> str:
    """The address of a file as the caller of `request` reaches this service."""
    signed = service_of(request).signed_urls.sign(_path(job_id, checkpoint_id, filename), expires_at)
    state: Mapping[str, Any] = request.scope["state"]
    base = request.base_url.replace(path="", query="")
    return f"{str(base).rstrip('/')}{state['prefix']}{SIGNED.removeprefix(ROOT)}/{signed}"


def _path(job_id: str, checkpoint_id: str, filename: str) -> str:
    return f"{job_id}/checkpoints/{checkpoint_id}/{filename}"
