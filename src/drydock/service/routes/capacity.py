"""The capacity question: how much of one hardware type this service has, and how much of it is taken.

A type that the pool lacks is answered with zeros, which is what clients that ask for every type expect. CPU slots are
answered in the fields of GPUs. There is no account and no reservation: `max_total_gpus` is the whole pool.
"""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.api_doc import documented
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.problems import json_response
from drydock.wire.rest import Capacity

router = APIRouter()


@router.get(ROOT + "/capacity", **documented(Capacity, query={"hardware": "H200, B200, … or CPU"}))
async def capacity(request: Request) -> Response:
    """Of `hardware`, else of the type that a job gets which names none."""
    pool = service_of(request).pool
    hardware = request.query_params.get("hardware") or pool.default_hardware
    counts = pool.counts(hardware)
    return json_response(
        {
            "hardware": hardware,
            "has_reservation": False,
            "max_total_gpus": counts.total,
            "reserved_gpus": 0,
            "in_use_gpus": counts.in_use,
            "pending_gpus": counts.pending,
            "available_gpus": counts.available,
        }
    )
