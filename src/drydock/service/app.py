"""The API process's application: its parts, their start and their end.

Start: the store is opened, and what an earlier API process left running is taken over (`recovery`). End: held answers
are given, jobs are ended and their workers killed, the store is written.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException

from drydock.errors import DrydockError
from drydock.service.access import job_access
from drydock.service.call_log import CallLog
from drydock.service.checkpoints import Checkpoints
from drydock.service.context import Service, attach
from drydock.service.gate import Gate
from drydock.service.jobs import Jobs
from drydock.service.metrics import Metrics
from drydock.service.pool import Pool
from drydock.service.problems import Refusal, answer_error, answer_http, answer_refusal
from drydock.service.recovery import recover
from drydock.service.request_table import RequestTable
from drydock.service.result_files import ResultFiles
from drydock.service.retention import forgetting
from drydock.service.routes import (
    capacity,
    checkpoints,
    events,
    forward_backward,
    generate,
    identity,
    jobs,
    metrics,
    openai,
    openapi,
    operation,
    requests,
    signed,
    step,
    usage,
)
from drydock.service.settings import ServiceSettings
from drydock.service.signed_urls import SignedUrls
from drydock.service.store import Store
from drydock.service.tokens import Tokens
from drydock.service.usage import Usage


def create_app(settings: ServiceSettings) -> FastAPI:
    """The ASGI application; its parts exist while its lifespan runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.weights_dir.mkdir(parents=True, exist_ok=True)
        pool = Pool.of_machine(settings.pool)
        store = await Store.open(settings.database, exclusive=True)
        try:
            results = ResultFiles(settings.state_dir / "results", settings.max_result_bytes)
            table = RequestTable(store, results)
            live = Jobs(store, table, settings, pool)
            used = Usage(store, live.placed)
            try:
                async with (
                    Tokens.opened(store, settings.token, settings.host) as tokens,
                    forgetting(store, results, settings.request_retention_days),
                ):
                    saved = Checkpoints(store, live)
                    urls = SignedUrls.of(settings.state_dir)
                    service = Service(settings, table, live, saved, pool, store, tokens, measured, urls, used)
                    await recover(service)
                    attach(app, service)
                    yield
            finally:
                table.release_holds()
                await live.close()
                await table.close()
                await used.close()
        finally:
            await store.close()

    measured = Metrics()
    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Gate, settings=settings)
    app.add_middleware(CallLog, metrics=measured)
    app.add_exception_handler(Refusal, answer_refusal)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(DrydockError, answer_error)
    app.include_router(signed.router)
    app.include_router(openapi.router)
    app.include_router(openai.router)
    for noun in (  # routes are tried in this order: the ones that are called most stand first
        requests,
        generate,
        forward_backward,
        step,
        operation,
        identity,
        metrics,
        capacity,
        usage,
        jobs,
        events,
        checkpoints,
    ):
        app.include_router(noun.router, dependencies=[Depends(job_access)])
    return app
