#!/bin/bash
cat > /app/ttl_cache.py << 'END'
import time
from collections import OrderedDict


class TTLCache:
    """Two orders of the same keys: by last use and by expiry, which is the order of the puts."""

    def __init__(self, capacity, ttl, clock=time.monotonic):
        if capacity < 1 or ttl <= 0:
            raise ValueError("capacity and ttl must be positive")
        self._capacity, self._ttl, self._clock = capacity, ttl, clock
        self._values = OrderedDict()
        self._ends = OrderedDict()

    def put(self, key, value):
        self._drop_expired()
        self._values.pop(key, None)
        self._ends.pop(key, None)
        if len(self._values) >= self._capacity:
            oldest, _ = self._values.popitem(last=False)
            del self._ends[oldest]
        self._values[key] = value
        self._ends[key] = self._clock() + self._ttl

    def get(self, key, default=None):
        self._drop_expired()
        if key not in self._values:
            return default
        self._values.move_to_end(key)
        return self._values[key]

    def __len__(self):
        self._drop_expired()
        return len(self._values)

    def __contains__(self, key):
        self._drop_expired()
        return key in self._values

    def _drop_expired(self):
        now = self._clock()
        while self._ends:
            key = next(iter(self._ends))
            if self._ends[key] > now:
                return
            del self._ends[key], self._values[key]
END
