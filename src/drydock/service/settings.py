"""What a training service is told when it starts.

Nothing here names a model or an engine: those come with each job. `state_dir` is the service's only memory; one
service at a time may own it.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from drydock.service.meters import Meter

MEBIBYTE = 1 << 20
DATABASE = "service.sqlite"


class ServiceSettings(BaseModel):
    """Settings of one API process."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    state_dir: Path
    """Folder of the database, the jobs' logs, results and checkpoints; made when missing, kept as an absolute path."""
    token: SecretStr | None = None
    """The operator's token, an admin's. Without it and without any token of the database the service is open, and then
    `host` must be a loopback address."""
    database_url: SecretStr | None = None
    """`postgresql://user:password@host/name`; by default a SQLite file in `state_dir`."""
    tls_cert: Path | None = None
    """Certificate chain (PEM). With `tls_key` the service speaks https only."""
    tls_key: Path | None = None
    """Private key (PEM) of `tls_cert`."""
    rate_limit_per_s: float = Field(default=1000.0, gt=0)
    """Calls per second that one token may make over time; a burst of twice as many passes. Beyond it: 429."""
    pool: dict[str, int] | None = None
    """GPUs by hardware type (`{"H200": 8}`), or `{"CPU": slots}`. None: the GPUs found, or CPU slots without any."""
    outlive_api_s: float = Field(default=300.0, ge=0)
    """How long worker processes wait for the API process to come back after it died; 0: they die with it."""
    heartbeat_timeout_s: float = Field(default=60.0, gt=0)
    """A worker process that says nothing for so long is killed as hung."""
    worker_memory_mb: int | None = Field(default=None, ge=64)
    """Most resident memory of one worker process; one that uses more is killed. None: no limit."""
    prices: dict[Meter, Annotated[float, Field(ge=0)]] = {}
    """Price of one unit of each meter (`{"gpu_seconds": 0.001}`); usage answers then carry a `cost`."""
    request_retention_days: float = Field(default=30.0, ge=0)
    """Requests of ended jobs, and their results, are removed so many days after they ended."""
    model_dirs: list[Path] = []
    """Folders whose models jobs may name by path. None set: admins may name any folder, users hub ids only."""
    sync_dir: Path | None = None
    """Where weights stand while they are handed from trainer to sampler (default: `state_dir`/sync)."""
    max_body_bytes: int = Field(default=62 * MEBIBYTE, ge=MEBIBYTE)
    """Largest request body; a longer one is answered with 413."""
    max_chunk_store_bytes: int = Field(default=4096 * MEBIBYTE, ge=MEBIBYTE)
    """Most bytes that unfinished forward-backward uploads of one job may hold in memory."""
    max_result_bytes: int = Field(default=4096 * MEBIBYTE, ge=0)
    """Most bytes of results with tensors that are kept on disk; the oldest give way."""
    max_wait_s: float = Field(default=600.0, gt=0)
    """Longest time that an answer is held for `Prefer: wait`."""

    @field_validator("state_dir", "sync_dir", "tls_cert", "tls_key")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        """Checkpoint paths are answered to callers with another working directory."""
        return folder.resolve() if folder is not None else None

    @field_validator("model_dirs")
    @classmethod
    def _all_absolute(cls, folders: list[Path]) -> list[Path]:
        return [folder.expanduser().resolve() for folder in folders]

    @model_validator(mode="after")
    def _whole_certificate(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both or neither")
        return self

    def url(self, port: int) -> str:
        """Where the service is reached from this machine once it listens on `port`."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{port}"

    @property
    def database(self) -> Path | str:
        """The SQLite file, or the URL with its password."""
        return self.database_url.get_secret_value() if self.database_url else self.state_dir / DATABASE

    @property
    def weights_dir(self) -> Path:
        """Where a weight sync puts its file."""
        return self.sync_dir or self.state_dir / "sync"
