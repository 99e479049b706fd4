"""One time limit over several commands."""

import time
from dataclasses import dataclass, field

from drydock.harness.mcp.failures import NoAnswer


@dataclass(frozen=True, slots=True)
class Countdown:
    """What is left of `limit_s` seconds that began when this was made."""

    limit_s: float
    _started: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        """More than 0; raises NoAnswer when nothing is left."""
        left_s = self._started + self.limit_s - time.monotonic()
        if left_s <= 0:
            raise NoAnswer(f"it did not answer within {self.limit_s:g} s")
        return left_s
