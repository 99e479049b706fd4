"""What a run's job uses, as the service meters it: read after each step, recorded as what was used since.

A service that does not meter, or cannot be asked, costs a run nothing but the figures.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drydock.client import TrainingClient
from drydock.errors import DrydockError

log = logging.getLogger(__name__)

ASK_S = 20.0
PREFIX = "usage/"


@dataclass(slots=True)
class JobUsage:
    """Usage of one job; the first reading counts from its start. meters: amounts at the last reading."""

    client: TrainingClient
    job_id: str
    meters: dict[str, float] = field(default_factory=dict)
    metered: bool = True

    async def since_last(self) -> dict[str, float]:
        """Metrics `usage/<meter>`: what was used since the last call; none where the service does not meter."""
        if not self.metered:
            return {}
        try:
            now = amounts(await self.client.job_usage(self.job_id, deadline_s=ASK_S))
        except DrydockError as error:
            log.info("the usage of job %s is not known, it is not asked for again: %s", self.job_id, error)
            self.metered = False
            return {}
        used = {f"{PREFIX}{name}": amount - self.meters.get(name, 0.0) for name, amount in now.items()}
        self.meters = now
        return used


def amounts(answer: Mapping[str, Any]) -> dict[str, float]:
    """The meters of an answer that are not 0, and its cost where prices are set."""
    meters = answer.get("meters") or {}
    found = {name: float(amount) for name, amount in meters.items() if amount}
    return found | ({"cost": float(answer["cost"])} if answer.get("cost") is not None else {})
