"""What a driver and one of its shards say to each other; which side says what, and when, is in `README.md`.

A message may carry a payload of bytes: the settings of `Setup`, the trajectory of `Done`. Both are read by who needs
them, so that what is wrong with one rollout's trajectory is found where that rollout is waited for.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from drydock.errors import Blame
from drydock.rollout.spec import RolloutSpec


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Setup(_Part):
    """Driver, once, first. The payload is what the shard makes its pools of."""

    kind: Literal["setup"] = "setup"


class Ready(_Part):
    """Shard, once: it takes rollouts."""

    kind: Literal["ready"] = "ready"


class Alive(_Part):
    """Shard, every few seconds once it is ready: its event loop still turns."""

    kind: Literal["alive"] = "alive"


class Refused(_Part):
    """Shard, instead of `Ready`, before it ends: why it cannot take any."""

    kind: Literal["refused"] = "refused"
    error: str
    blame: Blame


class Run(_Part):
    """Driver: make this attempt in the pool named so."""

    kind: Literal["run"] = "run"
    pool: str
    spec: RolloutSpec
    out_dir: Path | None


class Cancel(_Part):
    """Driver: end the rollout; it is answered all the same, once its sandbox is gone."""

    kind: Literal["cancel"] = "cancel"
    rollout_id: str


class Done(_Part):
    """Shard: the rollout is over. The payload is its trajectory as JSON."""

    kind: Literal["done"] = "done"
    rollout_id: str


class Cancelled(_Part):
    """Shard: the rollout was cancelled and its sandbox is gone."""

    kind: Literal["cancelled"] = "cancelled"
    rollout_id: str


class Failed(_Part):
    """Shard: an error of Drydock's own, since a rollout that breaks is a trajectory."""

    kind: Literal["failed"] = "failed"
    rollout_id: str
    error: str


Message = Setup | Ready | Alive | Refused | Run | Cancel | Done | Cancelled | Failed

MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])
