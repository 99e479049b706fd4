"""One service with one job of a trainer and a sampler, shared by the tests that leave both as they found them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.postgres import Postgres, postgres, programs
from builders.service_api import Api, sampling_config, training_config
from builders.tiny_model import build_tiny_model

from drydock.service.embedded import EmbeddedService

JOB = "shared"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tiny_model(tmp_path_factory.mktemp("service") / "model"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedService]:
    async with EmbeddedService(tmp_path_factory.mktemp("service") / "state") as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api(service: EmbeddedService) -> AsyncIterator[Api]:
    async with Api.of(service) as calls:
        yield calls


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def job(api: Api, model: str) -> str:
    """The id of the shared running job."""
    body = {"job_id": JOB, "sub_job_configs": [sampling_config(model), training_config(model)]}
    await api.post("", json=body)
    await api.wait_for_job(JOB)
    return JOB


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("no PostgreSQL server is installed (on Debian: apt-get install postgresql)")
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    """A new, empty PostgreSQL database."""
    return postgres_server.fresh_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A new, empty database of each kind, as `Store.open` takes it."""
    return tmp_path / "database.sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
