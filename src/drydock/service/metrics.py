"""What the service measures of itself, as Prometheus reads it.

Calls are counted as they end; everything else (jobs, room, open requests, workers) is read off the live parts when
somebody asks. Labels hold routes, statuses and kinds, never job ids or users, so their number is bounded.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The figures of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._calls = Counter(
            "drydock_calls", "Calls answered.", ("route", "method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "drydock_call_seconds",
            "Time from a call's arrival to the end of its answer; held: the caller asked for the answer to be held.",
            ("route", "method", "held"),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._gauges: dict[str, Gauge] = {}

    def observe(self, route: str, method: str, status: int, seconds: float, *, held: bool) -> None:
        """Counts a call that has ended."""
        method = method if method in _METHODS else "other"
        self._calls.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method, "yes" if held else "no").observe(seconds)

    def set(self, name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> None:
        """Replaces the gauge `name` by `values`, by the values of `labels`; `text` says what it measures."""
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = Gauge(name, text, labels, registry=self._registry)
        gauge.clear()
        for key, value in values.items():
            gauge.labels(*key).set(value)

    def text(self) -> bytes:
        """All figures in the exposition format."""
        return generate_latest(self._registry)
