"""From a configuration to a finished run: everything started in order, everything stopped in reverse.

Nothing is created before the checks that can fail have passed: configuration, tasks, model files, sandbox, and the
first task graded by an agent that does nothing. SIGINT and SIGTERM cancel the run; its job is cancelled and every
process, mount and socket is gone before the exit, within `deadlines.shutdown_s` and a few seconds.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from drydock.client import Refused, TrainingClient
from drydock.deadline import deadline
from drydock.errors import UserError
from drydock.report.progress import RunProgress
from drydock.report.summary import print_summary
from drydock.training.config import RunConfig
from drydock.training.config_file import to_toml
from drydock.training.model_folder import check_model_folder
from drydock.training.plan import RunPlan, plan_run
from drydock.training.run_audit import audit_run_folder
from drydock.training.run_folder import RunFolder
from drydock.training.run_lock import driver_lock

log = logging.getLogger(__name__)

HARD_STOP_S = 19.0
"""After a signal, the process ends at the latest after so many seconds, whatever still hangs."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the environment says and no file may: never part of the configuration, never logged."""

    service_token: SecretStr | None = None


def launch(config: RunConfig, secrets: Secrets, state_dir: Path, progress: RunProgress) -> int:
    """Run to the end. Returns 0, or 128 + signal number when a signal stopped the run. Raises DrydockError."""
    root = config.trainer.ckpt_path or Path("runs") / config.trainer.run_name
    folder = RunFolder(root.resolve(), config.trainer.run_name)
    folder.check()
    plan = plan_run(config)
    for warning in plan.warnings:
        progress.note(f"warning: {warning}")
    watchdog: list[threading.Timer] = []
    with driver_lock(state_dir, folder.root), progress:
        try:
            return asyncio.run(_stoppable(config, secrets, state_dir, plan, folder, progress, watchdog))
        except BaseExceptionGroup as group:
            raise _single_cause(group) from group
        finally:
            for timer in watchdog:
                timer.cancel()


def _single_cause(error: BaseException) -> BaseException:
    """What is inside groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _stoppable(
    config: RunConfig,
    secrets: Secrets,
    state_dir: Path,
    plan: RunPlan,
    folder: RunFolder,
    progress: RunProgress,
    watchdog: list[threading.Timer],
) -> int:
    """Run until done or signalled. `watchdog` gets the timer of the hard stop, which the caller cancels at the end."""
    run = asyncio.create_task(_run(config, secrets, state_dir, plan, folder, progress), name="run")
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if received:
            return
        received.append(number)
        progress.note(f"{number.name}: stopping the rollouts and cancelling the job")
        timer = threading.Timer(HARD_STOP_S, os._exit, (128 + number,))
        timer.daemon = True
        timer.start()
        watchdog.append(timer)
        run.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await run
    except asyncio.CancelledError:
        if not received:
            raise
        log.info("stopped by %s", received[0].name)
        if folder.log.exists():
            progress.note(f"stopped by {received[0].name}; what there is: {folder.root}")
        return 128 + received[0]
    return 0


async def _run(
    config: RunConfig, secrets: Secrets, state_dir: Path, plan: RunPlan, folder: RunFolder, progress: RunProgress
) -> None:
    progress.waiting("the agent harness to be imported")
    from drydock.proxy.template import ChatTemplate
    from drydock.rollout.pool import size_default_executor
    from drydock.training.session import RolloutSession, check_sandbox

    size_default_executor(config.generator.num_parallel_generation_workers)
    check_model_folder(config)
    template = ChatTemplate.load(config.trainer.policy.model.path)
    check_sandbox(config, state_dir, progress)
    await _check_service(config, secrets, progress)
    session = RolloutSession(config, plan, template, state_dir)
    async with deadline("the first task to be graded by an agent that does nothing", config.deadlines.preflight_s):
        progress.waiting(f"the preflight of task {plan.train_tasks[0].name}")
        report = await session.preflight()
    progress.note(f"preflight: {report}")
    _open_folder(folder, config, progress)
    try:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(_service(config, secrets, folder, progress))
            loop = await stack.enter_async_context(session.training_loop(client, folder, progress))
            await loop.run()
            progress.waiting("everything to be stopped")
        progress.waiting("the tokens in the trajectory files to be audited")
        print_summary(folder, await asyncio.to_thread(audit_run_folder, folder.root), progress.console)
    except asyncio.CancelledError:
        log.warning("the run was stopped")
        raise
    except Exception:
        log.exception("the run failed")
        raise
    finally:
        folder.launcher_pid.unlink(missing_ok=True)


@asynccontextmanager
async def _service(
    config: RunConfig, secrets: Secrets, folder: RunFolder, progress: RunProgress
) -> AsyncIterator[TrainingClient]:
    """A client of the configured service, or of one that is started for this run and stopped after it.

    A service started here that ends by itself cancels the block, which then raises ServiceError (in a group).
    """
    if config.service.base_url:
        async with _client(config, config.service.base_url, secrets.service_token) as client:
            yield client
        return
    from drydock.service.embedded import EmbeddedService

    progress.waiting("the embedded training service to start")
    limit = config.deadlines.service_start_s
    async with (
        EmbeddedService(folder.service_state, start_timeout_s=limit) as service,
        _client(config, service.base_url, service.token) as client,
        asyncio.TaskGroup() as group,
    ):
        watch = group.create_task(service.ended(), name="watch the training service")
        try:
            yield client
        finally:
            watch.cancel()


def _client(config: RunConfig, base_url: str, token: SecretStr | None) -> TrainingClient:
    service = config.service
    return TrainingClient(
        base_url, token=token, database=service.database, schema=service.schema_name, endpoint=service.endpoint
    )


async def _check_service(config: RunConfig, secrets: Secrets, progress: RunProgress) -> None:
    """Ask a service that is configured for its capacity: a wrong address or token is found before anything exists."""
    if config.service.base_url:
        progress.waiting(f"the training service at {config.service.base_url} to answer")
        async with _client(config, config.service.base_url, secrets.service_token) as client:
            try:
                await client.capacity()
            except Refused as error:
                if error.status != 401:
                    raise
                said = "refused the token" if secrets.service_token else "wants a token"
                raise UserError(
                    f"the training service at {config.service.base_url} {said} (HTTP 401): set DRYDOCK_SERVICE_TOKEN "
                    "(a service started by hand keeps it in its state folder, in the file `token`)"
                ) from None


def _open_folder(folder: RunFolder, config: RunConfig, progress: RunProgress) -> None:
    """Make the run's folder and start its log."""
    kept = folder.open()
    if kept is not None:
        progress.note(f"the earlier run in {folder.root} is kept as {kept}")
    folder.config.write_text(to_toml(config))
    folder.launcher_pid.write_text(f"{os.getpid()}\n")
    handler = logging.FileHandler(folder.log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("drydock")
    logger.setLevel(logging.INFO)
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.propagate = False
