"""Which checks `drydock doctor` makes: of this machine, or of a run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from drydock.finding import Finding
from drydock.sandbox.leftovers import check_leftovers
from drydock.sandbox.locations import default_cache_dir, driver_state_dir, sandboxes_in
from drydock.sandbox.requirements import check_local
from drydock.training.preflight import Check, in_thread
from drydock.training.preflight.machine_checks import machine_checks
from drydock.training.preflight.service import check_own_service, check_service

if TYPE_CHECKING:
    from drydock.report.progress import RunProgress
    from drydock.training.preflight.run_checks import RunChecks

URL_VARIABLE = "DRYDOCK_SERVICE_URL"
_SANDBOX_S = 120.0
_SERVICE_S = 90.0


def checks_of_machine() -> list[Check]:
    """What concerns every run here; the service is the one that DRYDOCK_SERVICE_URL names."""
    state_dir = driver_state_dir()
    service = Check(
        "service",
        "reachable",
        "the training service to answer",
        _SERVICE_S,
        f"check {URL_VARIABLE} and that the service runs",
        _named_service,
    )
    return [_local_sandbox(state_dir, None), *machine_checks(state_dir, None), service]


def checks_of_run(run: "RunChecks", deep: bool | None, progress: "RunProgress") -> list[Check]:
    """Everything that can be known of a run before it is started; `deep` None: the small job where it is cheap."""
    sandbox = run.config.sandbox
    if sandbox.environment == "local":
        given = sandbox.kwargs.get("cache_dir")
        looked_at = _local_sandbox(run.state_dir, Path(str(given)) if given else None)
    else:
        looked_at = run.sandbox(progress.note)
    last = [run.first_task()]
    if deep or (deep is None and run.live_job_is_cheap()):
        last.append(run.live_job(progress))
    return [*run.cheap(), looked_at, *last]


def _local_sandbox(state_dir: Path, cache_dir: Path | None) -> Check:
    """What the local sandbox needs, each by name; nothing is removed."""

    def find() -> list[Finding]:
        return [*check_local(cache_dir or default_cache_dir()), *check_leftovers(sandboxes_in(state_dir))]

    return Check("sandbox", "sandbox", "the sandbox to be checked", _SANDBOX_S, "see docs/sandbox.md", in_thread(find))


async def _named_service() -> list[Finding]:
    from drydock.client import TrainingClient

    url = os.environ.get(URL_VARIABLE)
    if not url:
        return check_own_service(None)
    token = os.environ.get("DRYDOCK_SERVICE_TOKEN") or None
    async with TrainingClient(url, token=token) as client:
        return await check_service(client, url, has_token=token is not None, wanted=None)
