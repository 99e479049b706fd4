"""A running training service and a client of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from builders.training_server import FAST_RETRY, TrainingServer

from drydock.client import TrainingClient


@pytest.fixture(scope="session")
def serving() -> Iterator[TrainingServer]:
    with TrainingServer().serving() as running:
        yield running


@pytest.fixture
def server(serving: TrainingServer) -> TrainingServer:
    serving.reset()
    return serving


@pytest.fixture
async def client(server: TrainingServer) -> AsyncIterator[TrainingClient]:
    async with TrainingClient(server.url, token="secret-token", retry=FAST_RETRY) as running:
        yield running
