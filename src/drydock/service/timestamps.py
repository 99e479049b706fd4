"""Times as the API writes them."""

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO-8601 in UTC with a trailing Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
