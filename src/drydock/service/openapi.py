"""The OpenAPI document of the service: its real paths, bodies, answers and refusals.

`python -m drydock.service.openapi` prints it; `docs/openapi.json` is that print, and a test keeps it so.
"""

import json
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from drydock.service.gate import ROOT
from drydock.service.load_body import LoadBody
from drydock.wire.rest import CancelBody, GenerateBody, JobCreate, OperationBody, SaveBody, StepBody

PREFIX = "/api/v2/databases/{database}/schemas/{schema}/{endpoint}"
DESCRIPTION = """\
The training service's API. Any database, schema and endpoint name is served; clients use `cortex-training` as the
endpoint. Send a token as `Authorization: Bearer <token>`, or as the password of Basic credentials in the base URL."""
BODIES = (JobCreate, CancelBody, GenerateBody, StepBody, SaveBody, LoadBody, OperationBody)
_PLACES = {
    "database": "any name, also an empty one",
    "schema": "any name, also an empty one",
    "endpoint": "any name; clients use cortex-training",
}


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once."""
    made = getattr(app.state, "openapi_document", None)
    if made is None:
        made = app.state.openapi_document = _make(app)
    return made


def _make(app: FastAPI) -> dict[str, Any]:
    plain = get_openapi(title="Drydock training service", version="2", description=DESCRIPTION, routes=app.routes)
    schemas = plain.setdefault("components", {}).setdefault("schemas", {})
    _, found = models_json_schema(
        [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
    )
    schemas |= {name: schema for name, schema in found.get("$defs", {}).items() if name not in schemas}
    plain["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "basic": {"type": "http", "scheme": "basic"},
    }
    plain["security"] = [{"bearer": []}, {"basic": []}]
    plain["paths"] = {
        path.replace(ROOT, PREFIX, 1): _with_places(item) if path.startswith(ROOT) else item
        for path, item in plain["paths"].items()
    }
    return plain


def _with_places(item: dict[str, Any]) -> dict[str, Any]:
    places = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
        }
        for name, text in _PLACES.items()
    ]
    return {**item, "parameters": places}


def published() -> str:
    """The document as `docs/openapi.json` holds it."""
    from drydock.service.app import create_app
    from drydock.service.settings import ServiceSettings

    app = create_app(ServiceSettings(state_dir=Path(gettempdir())))
    return json.dumps(document(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(published())
