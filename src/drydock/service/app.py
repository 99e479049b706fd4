"""The API process's application: its parts, their start and their end.

Start: the store is opened, whatever an earlier service left unfinished is marked failed with that reason. End: held
answers are given, jobs are ended and their workers killed, the store is written.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from sqlalchemy import Connection

from drydock.errors import DrydockError
from drydock.service import schema as tables
from drydock.service.checkpoints import Checkpoints
from drydock.service.context import Service, attach
from drydock.service.gate import Gate
from drydock.service.jobs import Jobs
from drydock.service.problems import Refusal, answer_bug, answer_error, answer_refusal
from drydock.service.request_table import RequestTable
from drydock.service.result_files import ResultFiles
from drydock.service.routes import checkpoints, forward_backward, generate, jobs, operation, requests, step, unsupported
from drydock.service.settings import ServiceSettings
from drydock.service.store import Store, fail_unfinished
from drydock.wire.status import JobStatus, RequestStatus

DATABASE = "service.sqlite"
RESTARTED = "the service was restarted while this was unfinished"


def create_app(settings: ServiceSettings) -> FastAPI:
    """The ASGI application; its parts exist while its lifespan runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.weights_dir.mkdir(parents=True, exist_ok=True)
        for stale in settings.weights_dir.glob("req_*.safetensors"):
            stale.unlink()
        url = settings.database_url
        store = await Store.open(url.get_secret_value() if url else settings.state_dir / DATABASE)
        try:
            await store.run(_fail_what_was_live)
            results = ResultFiles(settings.state_dir / "results", settings.max_result_bytes)
            table = RequestTable(store, results)
            live = Jobs(store, table, settings.state_dir, settings.max_chunk_store_bytes)
            attach(app, Service(settings, table, live, Checkpoints(store, live)))
            try:
                yield
            finally:
                table.release_holds()
                await live.close()
                await table.close()
        finally:
            await store.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Gate, settings=settings)
    app.add_exception_handler(Refusal, answer_refusal)
    app.add_exception_handler(DrydockError, answer_error)
    app.add_exception_handler(Exception, answer_bug)
    for noun in (jobs, requests, generate, forward_backward, step, checkpoints, operation, unsupported):
        app.include_router(noun.router)
    return app


def _fail_what_was_live(connection: Connection) -> None:
    now = time.time()
    over = [status.value for status in JobStatus if status.terminal]
    changes = {"status": JobStatus.FAILED.value, "updated_at": now, "reason": RESTARTED}
    fail_unfinished(connection, tables.jobs, over, changes)
    fail_unfinished(connection, tables.sub_jobs, over, {"status": JobStatus.FAILED.value})
    ended = [status.value for status in RequestStatus if status.terminal]
    failure = {
        "status": RequestStatus.FAILED.value,
        "updated_at": now,
        "error": RESTARTED,
        "error_type": "WorkerLost",
        "blame": "infrastructure",
    }
    fail_unfinished(connection, tables.requests, ended, failure)
