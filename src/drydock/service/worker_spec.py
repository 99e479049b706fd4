"""What a worker process is started with, and the limits that all of a service's workers live under."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.service.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One sub-job's process; `config` is the sub-job's configuration as created."""

    sub_job_id: str
    job_type: str
    config: dict[str, Any]
    log_dir: Path
    threads: int

    def start_fields(self) -> dict[str, Any]:
        """The operation that tells a new process what to be."""
        return {
            "sub_job_id": self.sub_job_id,
            "job_type": self.job_type,
            "config": self.config,
            "log_dir": str(self.log_dir),
            "threads": self.threads,
        }


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """run_dir: folder of the workers' sockets. outlive_s: how long they wait for a new API process.

    heartbeat_timeout_s: longest silence. memory_mb: most resident memory, None without a limit.
    """

    run_dir: Path
    outlive_s: float
    heartbeat_timeout_s: float
    memory_mb: int | None

    @classmethod
    def of(cls, settings: ServiceSettings, run_dir: Path) -> "WorkerLimits":
        """As the service's settings say."""
        return cls(run_dir, settings.outlive_api_s, settings.heartbeat_timeout_s, settings.worker_memory_mb)
