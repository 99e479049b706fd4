"""A tiny model and a real service, shared by the tests that leave both as they found them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.tiny_model import build_tiny_model

from drydock.service.embedded import EmbeddedService


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("preflight") / "model")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedService]:
    """With room for two sub-jobs."""
    async with EmbeddedService(tmp_path_factory.mktemp("preflight") / "state", pool={"CPU": 2}) as running:
        yield running
