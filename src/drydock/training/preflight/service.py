"""Whether the training service of a run answers, takes the caller, has room, and what of the caller's runs there.

Each is asked only when the one before it was answered. The token is used, never shown.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit

from drydock.client import Refused, TrainingClient
from drydock.errors import ServiceError
from drydock.finding import Finding, Level
from drydock.wire.rest import Capacity, Job

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_UNAUTHORIZED = (401, 403)
_NOT_SERVED = (404, 405, 501)
_TOKEN_REMEDY = (
    "set DRYDOCK_SERVICE_TOKEN (`drydock service token create` makes one, on the service's machine), for the hosted "
    "service ARCTIC_CORTEX_PAT"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run wants of a service: GPUs (or CPU slots) in all, and the comment that its job will have."""

    gpus: int
    comment: str | None


async def check_service(client: TrainingClient, url: str, *, has_token: bool, wanted: Wanted | None) -> list[Finding]:
    """reachable, credentials, capacity and live jobs, as far as it gets. `client` is open."""
    try:
        capacity = await client.capacity()
    except Refused as error:
        if error.status not in _UNAUTHORIZED:
            return [_reachable(url), Finding("capacity", Level.FAIL, str(error), "is this a training service?")]
        said = "refused the token" if has_token else "wants a token"
        detail = f"the training service at {url} {said} (HTTP {error.status})"
        return [_reachable(url), Finding("credentials", Level.FAIL, detail, _TOKEN_REMEDY)]
    except ServiceError as error:
        remedy = "check service.base_url or host, and that the service runs (`drydock service status` on its machine)"
        return [Finding("reachable", Level.FAIL, f"the training service at {url}: {error}", remedy)]
    found = [_reachable(url), await _credentials(client, url, has_token)]
    if wanted is not None:
        found.append(capacity_finding(capacity, wanted.gpus, str(getattr(capacity, "hardware", None) or "GPU")))
    return [*found, live_jobs(await client.list_jobs(), wanted.comment if wanted else None)]


def check_own_service(wanted: Wanted | None) -> list[Finding]:
    """Whether a service for the run alone can be started here, and has room."""
    from drydock.service.pool import Pool

    missing = [name for name in ("torch", "transformers", "sqlalchemy") if find_spec(name) is None]
    if missing:
        detail = f"a service of the run's own needs {', '.join(missing)}, not installed here"
        return [Finding("own service", Level.FAIL, detail, "pip install 'drydock[service]', or set service.base_url")]
    found = [Finding("own service", Level.PASS, "none is named: a run starts one of its own")]
    if wanted is not None:
        pool = Pool.of_machine(None)
        counts = pool.counts(pool.default_hardware)
        capacity = Capacity(max_total_gpus=counts.total, available_gpus=counts.available)
        found.append(capacity_finding(capacity, wanted.gpus, pool.default_hardware))
    return found


def capacity_finding(capacity: Capacity, wanted: int, hardware: str) -> Finding:
    """Whether a job that wants so many GPUs (or CPU slots) gets them: now, later or never.

    A service that answers -1 for its total has no limit.
    """
    asks = f"service.n_gpus_training + service.n_gpus_sampling = {wanted}"
    remedy = "wait for other jobs (`drydock jobs list`), or lower service.n_gpus_training or n_gpus_sampling"
    if capacity.available_gpus >= wanted and not capacity.pending_gpus:
        detail = f"{capacity.available_gpus} {hardware} free, {wanted} wanted"
        return Finding("capacity", Level.PASS, detail)
    if 0 <= capacity.max_total_gpus < wanted and capacity.available_gpus < wanted:
        detail = f"{asks}, but the service has {capacity.max_total_gpus} {hardware} in all"
        return Finding("capacity", Level.FAIL, detail, "lower them, or use a larger service")
    detail = (
        f"{asks}, {capacity.available_gpus} {hardware} are free and {capacity.pending_gpus} waited for: it will queue"
    )
    return Finding("capacity", Level.WARN, detail, remedy)


def live_jobs(jobs: list[Job], comment: str | None) -> Finding:
    """Whether jobs of the caller with the run's comment are live: another driver's, or a killed one's."""
    live = [job for job in jobs if not job.status.terminal]
    same = [job for job in live if comment is not None and job.comment == comment]
    if not same:
        return Finding("jobs", Level.PASS, f"{len(live)} of your jobs are live, none of them this run's")
    named = ", ".join(f"{job.job_id} ({job.status}, since {job.created_at or 'unknown'})" for job in same)
    remedy = "cancel what a killed driver left (`drydock jobs cancel ID`), or choose another service.job_comment"
    return Finding("jobs", Level.WARN, f"live with the comment {comment!r} of this run: {named}", remedy)


def _reachable(url: str) -> Finding:
    return Finding("reachable", Level.PASS, f"{url} answers")


async def _credentials(client: TrainingClient, url: str, has_token: bool) -> Finding:
    """Who the caller is, where the service tells it; the hosted one does not."""
    parts = urlsplit(url)
    if has_token and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        detail = f"the token goes to {parts.hostname} unencrypted"
        return Finding("credentials", Level.WARN, detail, "use https (docs/service.md, TLS)")
    try:
        identity = await client.whoami()
    except Refused as error:
        if error.status not in _NOT_SERVED:
            raise
        return Finding("credentials", Level.PASS, "accepted")
    detail = f"accepted as {identity.user} ({identity.role})"
    if identity.role == "viewer":
        return Finding("credentials", Level.FAIL, f"{detail}, who may not create jobs", _TOKEN_REMEDY)
    return Finding("credentials", Level.PASS, detail)
