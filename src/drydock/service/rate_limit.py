"""How many calls a token may make: a bucket that fills at a steady rate and holds a burst.

One bucket a token, kept in memory; a restart fills all of them.
"""

import time
from collections.abc import Callable

from drydock.bounded_cache import BoundedCache

_BUCKETS = 4096


class RateLimit:
    """`per_s` calls a second over time, `burst` at once."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = max(1.0, burst)
        self._clock = clock
        self._buckets: BoundedCache[str, tuple[float, float]] = BoundedCache(_BUCKETS)

    def wait_s(self, key: str) -> float:
        """Counts one call of `key`; 0.0 when it may pass, else the seconds after which the next one may."""
        now = self._clock()
        level, since = self._buckets.get(key) or (self._burst, now)
        level = min(self._burst, level + (now - since) * self._per_s)
        passes = level >= 1.0
        self._buckets.put(key, (level - 1.0 if passes else level, now))
        return 0.0 if passes else (1.0 - level) / self._per_s
