"""Weekly meetings in a place's local time."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo


def occurrences(first, zone, count):
    """The instants (aware, in UTC) of `count` weekly meetings.

    first: naive local time of the first one at `zone`, such as "Europe/Berlin". Every meeting is at the same local
    time. A local time that does not exist (clocks go forward over it) is moved forward by as much as the clocks go; one
    that occurs twice means the earlier.
    """
    start = first.replace(tzinfo=ZoneInfo(zone)).astimezone(timezone.utc)
    return [start + timedelta(weeks=n) for n in range(count)]


def local(instant, zone):
    """The local time at `zone` of an aware instant, as "YYYY-MM-DD HH:MM"."""
    return instant.strftime("%Y-%m-%d %H:%M")


def overlap(a_start, a_minutes, b_start, b_minutes):
    """Whether two meetings overlap; starts are aware, in any zones. Meetings that only touch do not overlap."""
    a_end = a_start + timedelta(minutes=a_minutes)
    b_end = b_start + timedelta(minutes=b_minutes)
    return str(a_start) <= str(b_end) and str(b_start) <= str(a_end)
