"""What the routes of one API process share, made at start-up and found through the application's state."""

from dataclasses import dataclass

from fastapi import FastAPI
from starlette.requests import Request

from drydock.service.checkpoints import Checkpoints
from drydock.service.jobs import Jobs
from drydock.service.metrics import Metrics
from drydock.service.pool import Pool
from drydock.service.request_table import RequestTable
from drydock.service.settings import ServiceSettings
from drydock.service.signed_urls import SignedUrls
from drydock.service.store import Store
from drydock.service.tokens import Tokens
from drydock.service.usage import Usage


@dataclass(frozen=True, slots=True)
class Service:
    """The live parts of one service."""

    settings: ServiceSettings
    requests: RequestTable
    jobs: Jobs
    checkpoints: Checkpoints
    pool: Pool
    store: Store
    tokens: Tokens
    metrics: Metrics
    signed_urls: SignedUrls
    usage: Usage


def attach(app: FastAPI, service: Service) -> None:
    """Makes `service` the one that the application's routes find."""
    app.state.service = service


def service_of(request: Request) -> Service:
    """The service that this call came to."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service
