"""Calls about jobs: create, read, list, cancel, wait for; and about the account: capacity, usage, identity."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drydock.client.call import open_call
from drydock.client.connection import CONTROL_DEADLINE_S, Connection
from drydock.client.job_wait import until_running
from drydock.client.transport import Refused, job_path
from drydock.wire.rest import CancelBody, Capacity, Job, JobCreate
from drydock.wire.status import JobStatus


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the service takes the caller for: user name and role ("user", "admin", "viewer")."""

    user: str
    role: str

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> "Identity":
        """Read the answer to whoami."""
        return cls(answer["user"], answer["role"])


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """The names under which a job's logs and metrics are filed."""

    experiment_name: str
    experiment_run_name: str

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> "ExperimentRun":
        """Read the answer to experiment-run."""
        return cls(answer["experiment_name"], answer["experiment_run_name"])


class JobCalls(Connection):
    """The control plane."""

    async def create_job(
        self, body: JobCreate, *, idempotency_key: str | None = None, deadline_s: float = CONTROL_DEADLINE_S
    ) -> Job:
        """Create a job; it is not yet running when this returns (see `wait_for_job`).

        idempotency_key: a second call with the same key and body gives the same job.
        """
        async with open_call("create job", body.job_id, deadline_s) as call:
            answer = await self._transport.send(
                call,
                "POST",
                "",
                content=body.model_dump_json(exclude_unset=True).encode(),
                headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key or str(uuid.uuid4())},
                resend=self._harmful_resend,
            )
            return call.read(Job.model_validate, answer)

    async def get_job(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> Job:
        """A job's present state."""
        return await self._get(Job.model_validate, "get job", job_id, job_path(job_id), deadline_s)

    async def list_jobs(
        self,
        status: str | None = None,
        comment: str | None = None,
        *,
        user: str | None = None,
        deadline_s: float = CONTROL_DEADLINE_S,
    ) -> list[Job]:
        """The caller's jobs, or those with the given status and exactly the given comment.

        user: of this user (an administrator sees all jobs without it).
        """
        params = {"status": status, "comment": comment, "user": user}
        jobs = await self._get(_read_jobs, "list jobs", None, "", deadline_s, params)
        return [
            job
            for job in jobs
            if (status is None or job.status == JobStatus.parse(status)) and (comment is None or job.comment == comment)
        ]

    async def cancel_job(
        self, job_id: str, reason: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S
    ) -> None:
        """Cancel a job; no error when it is over already.

        reason: kept as the job's; `drydock jobs` calls a job finished whose reason begins with `FINISHED`. Not told to
        the hosted service, which keeps none.
        """
        content = None if reason is None or self._hosted else CancelBody(reason=reason).model_dump_json().encode()
        async with open_call("cancel job", job_id, deadline_s) as call:
            try:
                headers = {"Content-Type": "application/json"} if content else None
                await self._transport.send(call, "POST", job_path(job_id, ":cancel"), content=content, headers=headers)
            except Refused as error:
                if error.status != 409:
                    raise

    async def wait_for_job(self, job_id: str, deadline_s: float) -> Job:
        """Wait until the job is running. Raises JobFailed, with the job's reason, when it ends instead."""
        async with open_call("wait for job", job_id, deadline_s) as call:
            return await until_running(self._transport, call, job_id, follow_events=not self._hosted)

    async def experiment_run(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> ExperimentRun:
        """The names under which the job's logs are filed."""
        path = job_path(job_id, "/experiment-run")
        return await self._get(ExperimentRun.from_answer, "experiment-run", job_id, path, deadline_s)

    async def capacity(self, hardware: str | None = None, *, deadline_s: float = CONTROL_DEADLINE_S) -> Capacity:
        """The pool's GPUs (or CPU slots): of one hardware type, or of the default one."""
        params = {"hardware": hardware or None}
        return await self._get(Capacity.model_validate, "capacity", None, "/capacity", deadline_s, params)

    async def usage(
        self,
        by: Literal["job", "user", "day"] = "job",
        *,
        job_id: str | None = None,
        user: str | None = None,
        since: str | None = None,
        until: str | None = None,
        deadline_s: float = CONTROL_DEADLINE_S,
    ) -> dict[str, Any]:
        """What was used, summed by job, user or day, as our service answers it. since, until: UTC days, YYYY-MM-DD."""
        params = {"by": by, "job_id": job_id, "user": user, "since": since, "until": until}
        return await self._get(dict, "usage", None, "/usage", deadline_s, params)

    async def job_usage(self, job_id: str, *, deadline_s: float = CONTROL_DEADLINE_S) -> dict[str, Any]:
        """What one job and each of its sub-jobs used."""
        return await self._get(dict, "usage", job_id, job_path(job_id, "/usage"), deadline_s)

    async def whoami(self, *, deadline_s: float = CONTROL_DEADLINE_S) -> Identity:
        """User name and role that the service takes this client's token for."""
        return await self._get(Identity.from_answer, "whoami", None, "/whoami", deadline_s)


def _read_jobs(answer: Mapping[str, Any]) -> list[Job]:
    return [Job.model_validate(entry) for entry in answer.get("jobs") or ()]
