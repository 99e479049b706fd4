import re
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from drydock.service.app import create_app
from drydock.service.gate import ROOT
from drydock.service.openapi import PREFIX, document, published
from drydock.service.settings import ServiceSettings

PAGE = Path(__file__).parents[2] / "docs" / "openapi.json"
METHODS = ("get", "post", "delete")


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return document(create_app(ServiceSettings(state_dir=tmp_path_factory.mktemp("state"))))


def test_the_published_page_is_the_documents_print():
    assert PAGE.read_text(encoding="utf-8") == published(), "run `make docs`"


def test_every_route_is_described_at_its_real_path(described: dict, tmp_path: Path):
    app = create_app(ServiceSettings(state_dir=tmp_path))
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
    for route in routes:
        path = re.sub(
            r":path\}", "}", route.path.replace(ROOT, PREFIX, 1) if route.path.startswith(ROOT) else route.path
        )
        assert {method.lower() for method in route.methods} <= described["paths"][path].keys()
    for path, item in described["paths"].items():
        names = {parameter["name"] for parameter in item.get("parameters", [])}
        for method in METHODS:
            operation = item.get(method)
            if operation is None:
                continue
            own = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
            assert names | own == set(re.findall(r"\{(\w+)\}", path))
            answers = operation["responses"]["200"]["content"]
            assert all(content.get("schema") for content in answers.values()), (path, method)
            assert operation.get("description"), (path, method)


def test_every_model_that_is_named_is_there(described: dict):
    named = set(re.findall(r"'#/components/schemas/([^']+)'", str(described)))
    assert named <= described["components"]["schemas"].keys()
    assert {"JobCreate", "GenerateBody", "RequestState", "Problem"} <= named


async def test_it_is_served_without_a_token_and_says_nothing_secret(service):
    async with httpx.AsyncClient(base_url=service.base_url) as stranger:
        answer = await stranger.get("/openapi.json")
    assert answer.status_code == 200
    assert answer.json()["openapi"].startswith("3.")
    assert service.token.get_secret_value() not in answer.text
