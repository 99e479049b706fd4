"""How a route says what it takes and answers, for the OpenAPI document; the route itself reads and writes plain JSON.

    @router.post(ROOT + "/{job_id}/step", **documented(body=StepBody, answer=RequestStarted | RequestState))

The models of bodies must stand in `openapi.BODIES` too, which puts them under the document's components.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from drydock.wire.answers import Problem

STATUSES = {
    400: "The body cannot be read, or the job has no sub-job for this call",
    401: "No token, or one that is not known",
    403: "The token may not do this",
    404: "No such job, request or checkpoint",
    409: "Not yet (the job is starting), taken, or in use",
    410: "The job is over, or the result was dropped",
    413: "The body is too long; send it in chunks",
    422: "A field has a value that cannot work; the message names both",
    429: "Too many calls or too much at once; try again later",
    500: "The service failed",
    501: "A part of the API that is not served; the message says why",
    503: "A worker process died meanwhile; ask again",
    504: "It took longer than the caller allowed",
}
OCTETS = "application/octet-stream"
JSON = "application/json"
PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=<seconds>`: hold the answer until the request is over or the time is up",
    "schema": {"type": "string"},
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key answers with the first request that had it",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


def documented(
    answer: Any,
    *,
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    octets: str | None = None,
    query: Mapping[str, str] | None = None,
    headers: tuple[dict[str, Any], ...] = (),
    statuses: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Arguments of a route's decorator.

    answer: model of the 200 answer. body: model of a JSON body, which may be left out unless it is required. octets:
    description of a frame in the body. query: name to description. statuses: answers beyond 401, 403, 404, 422 and
    429, which every call may get.
    """
    extra: dict[str, Any] = {}
    content: dict[str, Any] = {}
    if body is not None:
        content[JSON] = {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}
    if octets is not None:
        content[OCTETS] = {"schema": {"type": "string", "format": "binary", "description": octets}}
    if content:
        extra["requestBody"] = {"content": content, "required": body_required}
    parameters = [
        {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in (query or {}).items()
    ]
    if parameters or headers:
        extra["parameters"] = [*parameters, *headers]
    responses: dict[int, dict[str, Any]] = {
        status: {"model": Problem, "description": STATUSES[status]}
        for status in sorted({401, 403, 404, 422, 429, *statuses})
    }
    return {
        "responses": {200: {"model": answer, "description": "The call was served"}, **responses},
        "openapi_extra": extra,
    }
